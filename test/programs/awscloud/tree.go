package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// tree is a value of the cloud's interface: a text, a structure, or a list, whose names are numbers from 1. In a request
// each text has a name that is its path (Listeners.member.1.Protocol), in an answer it is XML.
type tree struct {
	text string
	kids map[string]*tree
}

func leaf(text string) *tree { return &tree{text: text} }

// node makes a structure of pairs of a path and a text.
func node(pairs ...string) *tree {
	t := &tree{}
	for pair := range slices.Chunk(pairs, 2) {
		t.set(pair[0], leaf(pair[1]))
	}
	return t
}

func list(items ...*tree) *tree {
	t := &tree{kids: map[string]*tree{}}
	for i, item := range items {
		t.kids[strconv.Itoa(i+1)] = item
	}
	return t
}

// parse makes a tree of a request.
func parse(form url.Values) *tree {
	t := &tree{}
	for name, values := range form {
		t.set(strings.ReplaceAll(name, ".member.", "."), leaf(values[0]))
	}
	return t
}

// get returns what is at a path; nothing there is an empty tree.
func (t *tree) get(path string) *tree {
	for name := range strings.SplitSeq(path, ".") {
		if t = t.kids[name]; t == nil {
			return &tree{}
		}
	}
	return t
}

func (t *tree) str(path string) string { return t.get(path).text }

func (t *tree) set(path string, to *tree) {
	for name := range strings.SplitSeq(path, ".") {
		if t.kids == nil {
			t.kids = map[string]*tree{}
		}
		if t.kids[name] == nil {
			t.kids[name] = &tree{}
		}
		t = t.kids[name]
	}
	*t = *to
}

// merge sets all that is in other.
func (t *tree) merge(other *tree) {
	for name, kid := range other.kids {
		if len(kid.kids) == 0 {
			t.set(name, leaf(kid.text))
			continue
		}
		into := t.get(name)
		into.merge(kid)
		t.set(name, into)
	}
}

// items are those of a list, in its order.
func (t *tree) items() (out []*tree) {
	for _, name := range t.names() {
		out = append(out, t.kids[name])
	}
	return out
}

func (t *tree) texts() (out []string) {
	for _, item := range t.items() {
		out = append(out, item.text)
	}
	return out
}

func (t *tree) add(items ...*tree) { *t = *list(append(t.items(), items...)...) }

func (t *tree) drop(gone func(*tree) bool) { *t = *list(slices.DeleteFunc(t.items(), gone)...) }

func (t *tree) isList() bool {
	for name := range t.kids {
		_, err := strconv.Atoi(name)
		return err == nil
	}
	return false
}

// names are those of what it consists of: numbers in their order, words by the alphabet.
func (t *tree) names() []string {
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	return slices.SortedFunc(maps.Keys(t.kids), func(a, b string) int { return cmp.Or(number(a)-number(b), strings.Compare(a, b)) })
}

// dialect is how a service writes its answers.
type dialect struct {
	item  string                   // the name of what is in a list
	named func(name string) string // what a field is called there
}

// write appends the fields of t.
func (d dialect) write(b *strings.Builder, t *tree) {
	for _, name := range t.names() {
		tag := d.item
		if !t.isList() {
			tag = d.named(name)
		}
		fmt.Fprintf(b, "<%s>", tag)
		if kid := t.kids[name]; len(kid.kids) == 0 {
			_ = xml.EscapeText(b, []byte(kid.text)) // a strings.Builder takes all
		} else {
			d.write(b, kid)
		}
		fmt.Fprintf(b, "</%s>", tag)
	}
}

// lines are the texts in t, each with its path.
func (t *tree) lines(path string) (out []string) {
	if len(t.kids) == 0 {
		return []string{path + " " + t.text}
	}
	for _, name := range t.names() {
		out = append(out, t.kids[name].lines(strings.TrimPrefix(path+"."+name, "."))...)
	}
	return out
}
