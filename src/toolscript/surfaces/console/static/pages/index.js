// The pages, in the order of the navigation. Each is loaded when it is first shown; one without an icon is a child.
export const PAGES = [
  { name: "search", title: "Search", icon: "search", load: () => import("./search.js") },
  { name: "tools", title: "Tools", icon: "tools", load: () => import("./tools.js") },
  { name: "tool", parent: "tools", load: () => import("./tool.js") },
  { name: "map", title: "Map", icon: "map", load: () => import("./map.js") },
  { name: "servers", title: "Servers", icon: "servers", key: "v", load: () => import("./servers.js") },
  { name: "skills", title: "Skills", icon: "skills", key: "k", load: () => import("./skills.js") },
  { name: "files", title: "Files", icon: "files", load: () => import("./files.js") },
  { name: "calls", title: "Calls", icon: "calls", load: () => import("./calls.js") },
  { name: "access", title: "Access", icon: "key", load: () => import("./access.js") },
  { name: "quality", title: "Quality", icon: "quality", load: () => import("./quality.js") },
  { name: "health", title: "Health", icon: "health", load: () => import("./health.js") },
];
