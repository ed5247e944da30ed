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
