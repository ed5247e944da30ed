package board

import _ "embed"

//go:embed style.html
var style string

// Style is the template "style" of html/template: the style sheet that all pages share, with the colours of states for
// light and for dark screens.
func Style() string { return style }
