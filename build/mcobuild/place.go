package mcobuild

import (
	"strings"

	"dayone.dev/dayone/build/containerfile"
)

// place is the line of the user's Containerfile that buildah was at. MCO writes its own stages first and the user's
// text below them, so that the user's stages are the last ones. False: the instruction is not the user's, or unknown.
func (o output) place(text string) (line int, found bool) {
	file, err := containerfile.Parse(text)
	if err != nil || o.step != stepContainerfile || o.stages == 0 {
		return 0, false
	}
	index := o.stage - 1 - (o.stages - len(file.Stages))
	if index < 0 || index >= len(file.Stages) {
		return 0, false
	}
	stage := file.Stages[index]
	if o.number == 1 {
		return stage.Line, true
	}
	if at := o.number - 2; at >= 0 && at < len(stage.Instructions) {
		i := stage.Instructions[at]
		keyword, _, _ := strings.Cut(o.instruction, " ")
		return i.Line, strings.EqualFold(i.Keyword, keyword)
	}
	return 0, false
}
