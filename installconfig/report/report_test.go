package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReportDropsDuplicates(t *testing.T) {
	var r Report
	for range 2 {
		r.Errorf(Finding{File: "secrets.yaml", Rule: "secret-type"}, "wrong type")
		r.Warnf(Finding{File: "pool.yaml", Rule: "unknown-field"}, "no effect")
	}
	r.Errorf(Finding{File: "a.yaml", Rule: "secret-type"}, "wrong type")
	assert.Len(t, r.Warnings(), 1)
	found := Of(r.Err())
	assert.Len(t, found, 2)
	assert.Equal(t, "a.yaml", found[0].File, "in order of files")
}

func TestPlace(t *testing.T) {
	assert.Equal(t, "a.yaml:3:7 (document 2): spec.x", Finding{File: "a.yaml", Document: 2, Line: 3, Column: 7,
		Path: "spec.x"}.Place())
	assert.Equal(t, "a.yaml: wrong [rule] (mend it)", Finding{File: "a.yaml", Message: "wrong", Rule: "rule",
		Next: "mend it"}.Error())
	assert.Equal(t, "wrong [rule]", Finding{Message: "wrong", Rule: "rule"}.Error())
}

func TestNearest(t *testing.T) {
	known := []string{"kernelArguments", "containerFile", "config", "name", "osImageURL"}
	for _, c := range []struct{ name, word, want string }{
		{"a letter too many", "containerFiles", "containerFile"},
		{"a letter too few", "nam", "name"},
		{"another case", "OSIMAGEURL", "osImageURL"},
		{"two letters swapped", "confgi", "config"},
		{"a shortened word", "kernelArgs", "kernelArguments"},
		{"another word", "replicas", ""},
		{"nothing", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, Nearest(c.word, known)) })
	}
	assert.Equal(t, "did you mean name? go on", DidYouMean("nmae", known, "go on"))
	assert.Equal(t, "go on", DidYouMean("replicas", known, "go on"))
}
