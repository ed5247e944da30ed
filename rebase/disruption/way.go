package disruption

import mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

// Way is from what a node has to what it is to have. The forecast, the published plan and the agent make what Effect
// takes from it, and from nothing else. From and To are required.
type Way struct {
	// From is the rendered config that the node has, To the one that it is to have.
	From, To *mcfgv1.MachineConfig
	// Was is the image that the node has, Is the one that it is to have; empty: the node is not layered.
	Was, Is string
	// ConfigOnly: these two images are known to differ in nothing but the config that they carry.
	ConfigOnly bool
}

// Input is what the effect of the way depends on.
func (w Way) Input(s Settings) Input {
	return Input{Old: w.From, New: w.To, Layered: w.Was != "" && w.Is != "", Image: w.image(s.Actor), Policies: s.Policies,
		Mirrors: s.Mirrors, Actor: s.Actor, Undrained: s.Undrained, Plain: w.Is == "",
		Reverts: w.Was != "" && w.Is == ""}
}

// image says how the image changes. The OS image of a node that is not layered is one of its config's own changes.
func (w Way) image(by Actor) ImageChange {
	switch {
	case w.Was == w.Is:
		return ImageSame
	case by == ActorMCO: // it boots into every other image, and compares names only
		return ImageContent
	case w.From.Name == w.To.Name && boots(w.From, w.Was) == boots(w.To, w.Is):
		return ImageSame
	case w.ConfigOnly && w.Was != "" && w.Is != "":
		return ImageConfig
	}
	return ImageContent
}

// boots is the image that a node with a config and an image boots.
func boots(config *mcfgv1.MachineConfig, image string) string {
	if image != "" {
		return image
	}
	return config.Spec.OSImageURL
}
