package daemon

// RegistryPeersPath is where a node has the addresses of the control plane's registries (registry/peers), from its first
// boot on; below the node's root. Without it pulls go their usual way.
const RegistryPeersPath = "/var/lib/dayone/registry-peers.json"
