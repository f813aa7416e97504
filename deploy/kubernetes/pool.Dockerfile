# The pool: mcp-proxy offers MCP servers on standard input and output over HTTP. Add the servers of pool.json here.
# docker build --file deploy/kubernetes/pool.Dockerfile --tag toolscript-pool:0 deploy/kubernetes

FROM node:22.20.0-bookworm-slim AS node

FROM python:3.12.12-slim-bookworm
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules /usr/local/lib/node_modules
RUN ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
 && pip install --no-cache-dir --disable-pip-version-check mcp-proxy==0.13.0 mcp-server-time==2026.10.10 uv==0.13.7 \
 && useradd --system --uid 10001 --home-dir /var/lib/pool --create-home pool
ENV HOME=/var/lib/pool \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /var/lib/pool
EXPOSE 8080
ENTRYPOINT ["mcp-proxy"]
