package match

import "k8s.io/apimachinery/pkg/runtime"

// New is an empty object of what is written, at a version.
func (t *Target) New(v *Version) runtime.Object {
	switch b := t.body(v); {
	case b != nil:
		return b.New()
	case v.def != nil:
		return v.def.New()
	}
	return t.a.Def.New()
}
