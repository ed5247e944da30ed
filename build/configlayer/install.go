package configlayer

import (
	"sort"
	"strings"
)

// unitName is a unit's name in parts: prefix@instance.suffix.
type unitName struct {
	prefix, instance, suffix string
	at                       bool
}

func parseUnitName(name string) unitName {
	dot := strings.LastIndex(name, ".")
	if dot < 0 {
		return unitName{prefix: name}
	}
	u := unitName{prefix: name[:dot], suffix: name[dot:]}
	if before, after, ok := strings.Cut(u.prefix, "@"); ok {
		u.prefix, u.instance, u.at = before, after, true
	}
	return u
}

func (u unitName) isTemplate() bool { return u.at && u.instance == "" }
func (u unitName) template() string { return u.prefix + "@" + u.suffix }
func (u unitName) full() string {
	if u.at {
		return u.prefix + "@" + u.instance + u.suffix
	}
	return u.prefix + u.suffix
}

// expand replaces the specifiers that depend on the unit's name (systemd.unit(5)); others are left as they are.
func (u unitName) expand(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	stem := strings.TrimSuffix(u.full(), u.suffix)
	last := u.prefix[strings.LastIndex(u.prefix, "-")+1:]
	return strings.NewReplacer("%%", "%", "%i", u.instance, "%n", u.full(), "%N", stem, "%p", u.prefix, "%j", last).
		Replace(s)
}

// install is a unit's [Install] section.
type install struct {
	wantedBy, requiredBy, upheldBy, alias, also []string
	defaultInstance                             string
}

// parseInstall reads the [Install] sections of a unit and its drop-ins as systemd does: lists add up, an empty value
// resets.
func parseInstall(texts ...string) install {
	var in install
	lists := map[string]*[]string{"WantedBy": &in.wantedBy, "RequiredBy": &in.requiredBy, "UpheldBy": &in.upheldBy,
		"Alias": &in.alias, "Also": &in.also}
	for _, text := range texts {
		section := ""
		for _, line := range logicalLines(text) {
			if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
				section = line[1 : len(line)-1]
				continue
			}
			key, value, ok := strings.Cut(line, "=")
			if !ok || section != "Install" {
				continue
			}
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if key == "DefaultInstance" {
				in.defaultInstance = value
				continue
			}
			list := lists[key]
			switch {
			case list == nil:
			case value == "":
				*list = nil
			default:
				*list = append(*list, strings.Fields(strings.ReplaceAll(value, `"`, ""))...)
			}
		}
	}
	return in
}

// logicalLines joins continued lines and drops comments, which may stand between the parts of a continued line.
func logicalLines(text string) []string {
	var out []string
	held := ""
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if rest, more := strings.CutSuffix(line, `\`); more {
			held += rest + " "
			continue
		}
		if line = strings.TrimSpace(held + line); line != "" {
			out = append(out, line)
		}
		held = ""
	}
	if held = strings.TrimSpace(held); held != "" {
		out = append(out, held)
	}
	return out
}

// links gives the links of an enabled unit, relative to /etc/systemd/system, in order.
func (in install) links(u unitName) []string {
	var out []string
	for _, kind := range []struct {
		targets []string
		dir     string
	}{{in.wantedBy, ".wants/"}, {in.requiredBy, ".requires/"}, {in.upheldBy, ".upholds/"}} {
		for _, target := range kind.targets {
			out = append(out, u.expand(target)+kind.dir+u.full())
		}
	}
	for _, alias := range in.alias {
		out = append(out, u.expand(alias))
	}
	sort.Strings(out)
	return out
}
