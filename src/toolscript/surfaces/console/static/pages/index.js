// The pages, in the order of the navigation. Each is loaded when it is first shown; one without an icon is a child.
export const PAGES = [
  { name: "search", title: "Search", icon: "search", load: () => import("./search.js") },
  { name: "tools", title: "Tools", icon: "tools", load: () => import("./tools.js") },
  { name: "tool", parent: "tools", load: () => import("./tool.js") },
];
