package resource

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
)

// erase returns the declaration, which is complete, for those who do not know T:
// its functions take Objects, which must be T's, or nil where T's may be.
func (s *Spec[T]) erase() Spec[Object] {
	d := Spec[Object]{
		Names: s.Names, Verbs: s.Verbs, Handler: s.Handler, Computed: s.Computed,
		HasGeneration: s.HasGeneration, Untracked: s.Untracked, Update: s.Update, Needs: each(s.Needs, Need[T].erase),
		Default:   func(obj Object) { s.Default(obj.(T)) },
		Prepare:   func(obj, old Object) { s.Prepare(obj.(T), typed[T](old)) },
		Requester: when(s.Requester != nil, func(obj Object, by user.Info) { s.Requester(obj.(T), by) }),
		Validate:  func(obj, old Object, errs *Errors) { s.Validate(obj.(T), typed[T](old), errs) },
		Warn:      func(obj, old Object) []string { return s.Warn(obj.(T), typed[T](old)) },
		Unique: Unique[Object]{
			Commit: when(s.Commit != nil, func(tx Tx, obj, old Object) error { return s.Commit(tx, typed[T](obj), typed[T](old)) }),
			Taking: s.Taking.erase(),
			Offer:  s.Offer.erase(),
		},

		TTL: func(obj Object) time.Duration { return s.TTL(obj.(T)) }, Deletion: s.Deletion.erase(),
		Caching: s.Caching.erase(),

		Columns: each(s.Columns, Column[T].erase), Ageless: s.Ageless, Rows: s.Rows.erase(),
		Fields: map[string]func(Object) string{}, Index: map[string]func(Object) []string{},
		Sub: each(s.Sub, Sub[T].erase), OldFields: s.OldFields, Versions: each(s.Versions, Version[T].erase),
	}
	for name, f := range s.Fields {
		d.Fields[name] = func(obj Object) string { return f(obj.(T)) }
	}
	for name, f := range s.Index {
		d.Index[name] = func(obj Object) []string { return f(obj.(T)) }
	}
	return d
}

func (n Need[T]) erase() Need[Object] {
	return Need[Object]{Served: n.Served, Drop: func(obj, old Object) { n.Drop(obj.(T), typed[T](old)) }}
}

func (c *Taking[T]) erase() *Taking[Object] {
	if c == nil {
		return nil
	}
	return &Taking[Object]{
		Class:  c.Class,
		New:    func(value string, holder Holder) Object { return c.New(value, holder) },
		Holder: func(obj Object) Holder { return c.Holder(obj.(T)) },
		Made:   func(obj Object) bool { return c.Made(obj.(T)) },
	}
}

func (o *Offer[T]) erase() *Offer[Object] {
	if o == nil {
		return nil
	}
	return &Offer[Object]{Class: o.Class, Values: func(obj Object) []string { return o.Values(obj.(T)) }}
}

func (d Deletion[T]) erase() Deletion[Object] {
	return Deletion[Object]{
		GracePeriod:        when(d.GracePeriod != nil, func(obj Object, asked *int64) int64 { return d.GracePeriod(obj.(T), asked) }),
		DefaultPropagation: d.DefaultPropagation,
		NoDependents:       d.NoDependents,
		NoPolicyWarning:    d.NoPolicyWarning,
		PendingDelete:      when(d.PendingDelete != nil, func(obj Object) bool { return d.PendingDelete(obj.(T)) }),
		Terminate:          when(d.Terminate != nil, func(obj Object) { d.Terminate(obj.(T)) }),
		AnswersDeleted:     d.AnswersDeleted,
	}
}

func (c Caching[T]) erase() Caching[Object] {
	return Caching[Object]{
		PodSpec: when(c.PodSpec != nil, func(obj Object) *corev1.PodSpec { return c.PodSpec(obj.(T)) }),
		Minor:   when(c.Minor != nil, func(was, is Object) bool { return c.Minor(was.(T), is.(T)) }),

		ByLabels: c.ByLabels,
	}
}

func (s Sub[T]) erase() Sub[Object] {
	return Sub[Object]{
		Name: s.Name, Verbs: s.Verbs, Body: s.Body, Keeps: s.Keeps, Handler: s.Handler, Columns: s.Columns,
		Merge: when(s.Merge != nil, func(obj, old Object) {
			s.Keeps.from(obj, old)
			s.Merge(obj.(T), old.(T))
		}),
		Validate: when(s.Validate != nil, func(obj, old Object, errs *Errors) { s.Validate(obj.(T), typed[T](old), errs) }),
		Get:      when(s.Get != nil, func(obj Object) runtime.Object { return s.Get(obj.(T)) }),
		Set:      when(s.Set != nil, func(obj Object, body runtime.Object) error { return s.Set(obj.(T), body) }),
		Lacks:    when(s.Lacks != nil, func(obj Object) error { return s.Lacks(obj.(T)) }),
	}
}

func (v Version[T]) erase() Version[Object] {
	return Version[Object]{
		Group: v.Group, Version: v.Version, New: v.New, Default: v.Default, Deprecated: v.Deprecated, OffByDefault: v.OffByDefault,
		To:                 func(obj Object) (Object, error) { return v.To(obj) },
		From:               func(obj Object) (Object, error) { return v.From(obj.(T)) },
		Prepare:            func(obj, old Object) { v.Prepare(obj.(T), typed[T](old)) },
		Validate:           func(obj, old Object, errs *Errors) { v.Validate(obj.(T), typed[T](old), errs) },
		DefaultPropagation: v.DefaultPropagation, Sub: each(v.Sub, Sub[T].erase), Live: v.Live,
	}
}

func (c Column[T]) erase() Column[Object] {
	return Column[Object]{
		Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority,
		Value: func(obj Object) any { return c.Value(obj.(T)) },
	}
}

func (r Rows[T]) erase() Rows[Object] {
	return Rows[Object]{
		Order:      when(r.Order != nil, func(a, b Object) int { return r.Order(a.(T), b.(T)) }),
		Conditions: when(r.Conditions != nil, func(obj Object) []metav1.TableRowCondition { return r.Conditions(obj.(T)) }),
	}
}

// when is f, or nil if there is nothing that f could call.
func when[F any](there bool, f F) (none F) {
	if there {
		return f
	}
	return none
}

// typed turns a possibly nil interface into a possibly nil T.
func typed[T Object](obj Object) T {
	t, _ := obj.(T)
	return t
}

// each is what f makes of each.
func each[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i := range list {
		out[i] = f(list[i])
	}
	return out
}
