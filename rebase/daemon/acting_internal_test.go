package daemon

import (
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
)

func TestUnitsOfAConfig(t *testing.T) {
	text, empty, yes, no := "[Unit]\n", "", true, false
	c := ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{
		{Name: "whole.service", Contents: &text}, {Name: "unmasked.service", Contents: &text, Mask: &no},
		{Name: "masked.service", Contents: &text, Mask: &yes}, {Name: "bare.service"},
		{Name: "empty.service", Contents: &empty}}},
		Storage: ign35.Storage{Files: []ign35.File{{Node: ign35.Node{Path: "/etc/systemd/system/file.service"}}}}}
	for _, u := range []struct {
		name        string
		has, masked bool
	}{
		{"whole.service", true, false}, {"unmasked.service", true, false}, {"masked.service", false, true},
		{"bare.service", false, false}, {"empty.service", false, false}, {"file.service", true, false},
		{"none.service", false, false},
	} {
		assert.Equal(t, u.has, hasUnit(c, u.name), u.name)
		assert.Equal(t, u.masked, masks(c, u.name), u.name)
	}
}

func TestUnitChanges(t *testing.T) {
	yes, no := true, false
	before := ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{{Name: "stays", Enabled: &yes},
		{Name: "ends", Enabled: &yes}, {Name: "goes", Enabled: &yes}, {Name: "off", Enabled: &no}, {Name: "gone"},
		{Name: "untold", Enabled: &yes}}}}
	after := ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{{Name: "stays", Enabled: &yes},
		{Name: "ends", Enabled: &no}, {Name: "off", Enabled: &yes}, {Name: "new", Enabled: &yes},
		{Name: "idle", Enabled: &no}, {Name: "untold"}}}}
	enable, disable := unitChanges(before, after)
	assert.Equal(t, []string{"off", "new"}, enable)
	assert.ElementsMatch(t, []string{"ends", "goes"}, disable)
}
