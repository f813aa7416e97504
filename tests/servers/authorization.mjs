// A real authorization server (oidc-provider) on a loopback port, for tests of logins.
//
// `node authorization.mjs MODULES OPTIONS` prints one line of JSON that says where it listens, and ends with its input.
// Everybody who asks is logged in as "ann" and consents. OPTIONS is JSON: `ttl` (seconds of an access token),
// `documents` (client id documents by URL), `registration` (false: clients do not register themselves), `port`, `scopes`
// (of the servers that its tokens are for).
// GET /test/record lists everything secret that it issued, and counts the requests to its token endpoint.
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const [modules, json] = process.argv.slice(2);
const options = { ttl: 3600, documents: null, registration: true, port: 0, scopes: 'tools:read tools:write', ...JSON.parse(json ?? '{}') };
const { Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));

const server = createServer();
await new Promise((resolve) => server.listen(options.port, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const record = { secrets: [], grants: {}, errors: {}, clients: 0 };

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'configured',
      client_secret: 'configured-secret-of-the-client',
      redirect_uris: ['http://127.0.0.1/callback'],
      application_type: 'native',
      grant_types: ['authorization_code', 'refresh_token'],
      token_endpoint_auth_method: 'client_secret_basic',
    },
  ],
  scopes: ['offline_access', ...options.scopes.split(' ')],
  ttl: { AccessToken: options.ttl, RefreshToken: 86400, Grant: 86400, Session: 86400, Interaction: 600 },
  rotateRefreshToken: true,
  pkce: { required: () => true },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: options.registration },
    revocation: { enabled: true },
    clientIdMetadataDocument: { enabled: options.documents !== null, ack: 'draft-02' },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (ctx, resource) => ({
        audience: resource,
        scope: options.scopes,
        accessTokenFormat: 'jwt',
        accessTokenTTL: options.ttl,
      }),
      useGrantedResource: () => true,
    },
  },
  fetch: async (url) => new Response(JSON.stringify(options.documents[url]), { headers: { 'content-type': 'application/json' } }),
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
});

provider.on('grant.success', (ctx) => {
  const grant = ctx.oidc.params.grant_type;
  record.grants[grant] = (record.grants[grant] ?? 0) + 1;
  record.secrets.push(ctx.body.access_token, ctx.body.refresh_token, ctx.oidc.params.code, ctx.oidc.params.code_verifier);
});
provider.on('grant.error', (ctx, error) => {
  record.errors[error.error] = (record.errors[error.error] ?? 0) + 1;
});
provider.on('registration_create.success', () => { record.clients += 1; });

async function interact(request, response) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') {
    return provider.interactionFinished(request, response, { login: { accountId: 'ann' } });
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  if (prompt.details.missingOIDCScope) grant.addOIDCScope(prompt.details.missingOIDCScope.join(' '));
  for (const [resource, scopes] of Object.entries(prompt.details.missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, scopes.join(' '));
  }
  return provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
}

const answer = provider.callback();
server.on('request', (request, response) => {
  if (request.url === '/test/record') {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ ...record, secrets: record.secrets.filter(Boolean) }));
  } else if (request.url.startsWith('/interaction/')) {
    interact(request, response).catch((error) => {
      response.statusCode = 500;
      response.end(String(error));
    });
  } else {
    answer(request, response);
  }
});
process.stdout.write(`${JSON.stringify({ issuer })}\n`);
process.stdin.on('end', () => process.exit(0)).resume();
