package netpolicy

import (
	"k8s.io/apimachinery/pkg/labels"
	ops "k8s.io/apimachinery/pkg/selection"
)

// directory finds those of many peers that a pod may be among: most selectors ask for a label
// with one value, and are looked up by that.
type directory struct {
	by   map[label]map[*peers]bool
	rest map[*peers]bool // that ask for no such label
}

type label struct{ key, value string }

// asked is a label that all pods of a selector have; ok is false if there is none.
func asked(s labels.Selector) (l label, ok bool) {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case ops.Equals, ops.DoubleEquals, ops.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				return label{r.Key(), values[0]}, true
			}
		}
	}
	return label{}, false
}

func (d *directory) add(s *peers) {
	l, ok := asked(s.pods.pods)
	if !ok {
		if d.rest == nil {
			d.rest = map[*peers]bool{}
		}
		d.rest[s] = true
		return
	}
	if d.by == nil {
		d.by = map[label]map[*peers]bool{}
	}
	if d.by[l] == nil {
		d.by[l] = map[*peers]bool{}
	}
	d.by[l][s] = true
}

func (d *directory) remove(s *peers) {
	delete(d.rest, s)
	if l, ok := asked(s.pods.pods); ok {
		if delete(d.by[l], s); len(d.by[l]) == 0 {
			delete(d.by, l)
		}
	}
}

func (d *directory) empty() bool { return len(d.by)+len(d.rest) == 0 }

// each calls fn with the peers that a pod with the labels may be among.
func (d *directory) each(l labels.Set, fn func(*peers)) {
	for s := range d.rest {
		fn(s)
	}
	if len(d.by) == 0 {
		return
	}
	for k, v := range l {
		for s := range d.by[label{k, v}] {
			fn(s)
		}
	}
}
