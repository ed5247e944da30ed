package assets

import (
	"embed"
	"fmt"
)

// AgentUnitName is the systemd unit of the node agent.
const AgentUnitName = "dayone-agent.service"

// RegistryUnitName is the systemd unit of a control-plane node's registry.
const RegistryUnitName = "dayone-registry.service"

//go:embed agent
var agent embed.FS

// AgentUnit is the unit's text, for nodes on which no DaemonSet runs the agent.
func AgentUnit() (string, error) { return agentFile(AgentUnitName) }

// RegistryUnit is the unit's text.
func RegistryUnit() (string, error) { return agentFile(RegistryUnitName) }

// AgentKubeletRights are the objects that such agents need in the cluster, as YAML.
func AgentKubeletRights() (string, error) { return agentFile("kubelet-rbac.yaml") }

func agentFile(name string) (string, error) {
	raw, err := agent.ReadFile("agent/" + name)
	if err != nil {
		return "", fmt.Errorf("read embedded %s: %w", name, err)
	}
	return string(raw), nil
}
