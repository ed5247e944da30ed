package strict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type inner struct {
	Name  string            `json:"name"`
	Count *int              `json:"count,omitempty"`
	Words map[string]string `json:"words"`
}

type outer struct {
	inner  `json:",inline"`
	List   []inner          `json:"list"`
	On     bool             `json:"on"`
	Secret []byte           `json:"secret"`
	Any    any              `json:"any"`
	Raw    *json.RawMessage `json:"raw"`
}

func node(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var n yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &n))
	return n.Content[0]
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"all good", "name: a\ncount: 3\nwords: {a: b}\nlist: [{name: b}]\non: true\nsecret: YQ==\nany: {x: [1]}\n" +
			"raw: 5", nil},
		{"a letter too few", "list:\n- nme: a", []string{"2:3 list[0].nme unknown-key did you mean name? known here: " +
			"name, count, words"}},
		{"another case", "On: true", []string{"1:1 On unknown-key did you mean on? known here: name, count, words, list, " +
			"on, secret, any, raw"}},
		{"twice", "on: true\non: false", []string{"2:1 on repeated-key keep one of them"}},
		{"twice in free form", "any:\n  x: 1\n  x: 2", []string{"3:3 any.x repeated-key keep one of them"}},
		{"a number for a string", "name: 7", []string{
			"1:7 name wrong-type numbers, true and false as a string need quotes"}},
		{"YAML 1.1's yes", "name: yes\non: yes", []string{
			"1:7 name wrong-type numbers, true and false as a string need quotes"}},
		{"a string for a number", `count: "3"`, []string{"1:8 count wrong-type write it without quotes"}},
		{"no base64", "secret: '%%%'", []string{
			"1:9 secret wrong-type encode it with base64 -w0; in a Secret, stringData takes values as they are"}},
		{"a number in a map of strings", "words:\n  a.b/c: 1", []string{
			"2:10 words[a.b/c] wrong-type numbers, true and false as a string need quotes"}},
		{"by an alias", "list:\n- &a {nam: b}\n- *a", []string{
			"2:7 list[0].nam unknown-key did you mean name? known here: name, count, words",
			"2:7 list[1].nam unknown-key did you mean name? known here: name, count, words"}},
		{"no value", "count:", []string{"1:7 count wrong-type write it without quotes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, f := range Check(node(t, c.text), reflect.TypeFor[outer](), "", Options{}) {
				got = append(got, fmt.Sprintf("%d:%d %s %s %s", f.Line, f.Column, f.Path, f.Rule, f.Next))
			}
			assert.Equal(t, c.want, got)
		})
	}
	assert.Empty(t, Check(node(t, "count:"), reflect.TypeFor[outer](), "", Options{Null: true}))
}

func TestCheckEndsWithAnAliasOfItself(t *testing.T) {
	type tree struct {
		Below *tree `json:"below"`
	}
	n := node(t, "below: &a\n  below: {}\n")
	n.Content[1].Content[1] = &yaml.Node{Kind: yaml.AliasNode, Alias: n.Content[1]}
	assert.Empty(t, Check(n, reflect.TypeFor[tree](), "", Options{}))
}

func TestPlace(t *testing.T) {
	const text = "metadata:\n  annotations:\n    example.com/key: a\nspec:\n  list:\n  - name: b\n  - {name: c}\n"
	for _, c := range []struct {
		name, path   string
		key          bool
		line, column int
	}{
		{"a value", "spec.list[1].name", false, 7, 12},
		{"its key", "spec.list[1].name", true, 7, 6},
		{"a list", "spec.list", false, 5, 3},
		{"an entry", "spec.list[0]", false, 6, 5},
		{"a key with dots in brackets", "metadata.annotations[example.com/key]", false, 3, 22},
		{"a key with dots", "metadata.annotations.example.com/key", false, 3, 22},
		{"what is not there", "spec.list[0].other.more", false, 6, 5},
		{"nothing of it", "status", false, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			line, column, found := Place(node(t, text), c.path, c.key)
			assert.Equal(t, []int{c.line, c.column}, []int{line, column})
			assert.Equal(t, c.line > 0, found)
		})
	}
}
