package resource

import (
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Object is what the Go type of every kind is: a pointer to a wire type.
// An Object that came out of a cache or a client is shared and read-only.
type Object interface {
	metav1.Object
	runtime.Object
}

// Spec declares a resource. T is the wire type of its storage version.
//
// A write runs, in this order: decode and merge, Default, mutating admission,
// Prepare, Validate, validating admission, and then one store transaction in
// which Commit takes part. old is nil on create and read-only always.
type Spec[T Object] struct {
	Names

	// Default fills unset fields. It must not look at anything but obj.
	Default func(obj T)
	// Prepare drops what a client may not set and sets what the server owns
	// (status on create, generation is handled by HasGeneration).
	Prepare func(obj, old T)
	// Requester writes into a new object who makes it, over what it says itself.
	Requester func(obj T, by user.Info)
	// Validate refuses. It sees defaulted objects only.
	Validate func(obj, old T, errs *Errors)
	// Warn returns the texts of Warning headers.
	Warn func(obj, old T) []string
	// Unique is how values are kept unique in the cluster.
	Unique[T]

	// Verbs are what can be done with the objects; none: AllVerbs, Create alone if
	// there is a Handler, or ReadVerbs if they are Computed.
	Verbs Verbs
	// Handler answers the objects if they are questions, and not stored (TokenReview ...).
	Handler Handler
	// Computed: the objects are made when somebody asks for them, by a source that the
	// server is given, and not stored. They cannot be watched.
	Computed bool

	// HasGeneration: metadata.generation counts changes of all but metadata and status.
	HasGeneration bool
	// Untracked: only apply requests write metadata.managedFields; for heartbeat
	// objects that nobody applies.
	Untracked bool
	// Update is what a PUT does other than of most kinds.
	Update UpdateRules
	// Needs are parts of an object that mean nothing unless another resource is served.
	Needs []Need[T]

	// TTL, if not nil, says how long an object is kept (events). Zero: for ever.
	TTL func(obj T) time.Duration
	// Deletion is how objects go.
	Deletion[T]

	// Caching is what caches know of the objects.
	Caching[T]

	// Columns of kubectl get. NAME is put in front and AGE before the first column
	// of priority 1 (unless Ageless); declare a column of that name to have it
	// elsewhere. Priority 1 columns show with -o wide only.
	Columns []Column[T]
	Ageless bool
	// Rows are what is shown of the objects beyond their columns.
	Rows Rows[T]
	// Fields are the field selectors beyond metadata.name and metadata.namespace.
	Fields map[string]func(T) string
	// Index declares cache indexes by name: the values an object is found by.
	// Every resource has the index "controller" (UID of the controlling owner)
	// and "owner" (UIDs of all owners) besides. A Fields entry of the same name
	// makes lists and watches with that selector use the index.
	Index map[string]func(T) []string

	// Sub are the subresources. status and scale have constructors: [Status], [Scale].
	Sub []Sub[T]

	// OldFields are fields of earlier releases that documents may still have.
	OldFields []OldField

	// Versions are further group-versions of the same objects, served converted.
	Versions []Version[T]
}

// UpdateRules are what a PUT does other than of most kinds.
type UpdateRules uint8

// The rules.
const (
	// UpdateCreates: it makes an object that is not there (Lease, Event, Endpoints ...).
	UpdateCreates UpdateRules = 1 << iota
	// UpdateNeedsRevision: without a resourceVersion, where it overwrites whatever
	// there is of most kinds, it is refused.
	UpdateNeedsRevision
)

// Has reports whether a rule is among them.
func (r UpdateRules) Has(rule UpdateRules) bool { return r&rule != 0 }

// Need is a part of an object that means nothing unless another resource is served.
type Need[T Object] struct {
	Served *Def
	// Drop takes the part away from what is to be stored. old is nil on create; what
	// is there already may stay.
	Drop func(obj, old T)
}

// Deletion is how the objects of a resource go.
type Deletion[T Object] struct {
	// GracePeriod, if not nil, makes deletion graceful (pods): it returns how
	// long the object may stay with a deletionTimestamp, from the request's
	// value (nil: not given). A result of 0 deletes at once.
	GracePeriod func(obj T, asked *int64) int64
	// DefaultPropagation is used when a delete does not name a policy; the
	// default is background.
	DefaultPropagation metav1.DeletionPropagation
	// NoDependents: nothing has the objects as owners, and a policy of a delete means nothing.
	NoDependents bool
	// NoPolicyWarning is what a client hears whose delete does not name a policy; empty: nothing.
	NoPolicyWarning string
	// PendingDelete reports that the object must stay although it has no
	// metadata.finalizers left (a namespace with spec.finalizers).
	PendingDelete func(obj T) bool
	// Terminate, if not nil, shows in an object that it is being deleted (a phase),
	// each time that is marked. It has no grace period then.
	Terminate func(obj T)
	// AnswersDeleted: who deletes an object is sent its last state, and not a Status.
	AnswersDeleted bool
}

// Caching is what caches know of the objects of a resource.
type Caching[T Object] struct {
	// PodSpec, if not nil, is a part of an object that is much the same in many:
	// the cache keeps what is equal once.
	PodSpec func(obj T) *corev1.PodSpec
	// Minor, if not nil, reports that nobody waits for a change: who watches it over the
	// network is told of it together with the next one, or some seconds later (heartbeats, which
	// all nodes watch of all nodes).
	Minor func(was, is T) bool
	// ByLabels has the objects of a namespace found by their labels without a look at all: for
	// what is selected again and again.
	ByLabels bool
}

// Sub is a subresource.
type Sub[T Object] struct {
	Name string // "status"

	// Verbs are what can be done with it; none: PartVerbs.
	Verbs Verbs

	// Body describes the object that is sent and answered if it is not the
	// resource itself (Scale, Binding, TokenRequest ...).
	Body *Body

	// Merge makes the object to be stored from what the client sent and what is
	// stored: it takes over into obj from old all that this subresource does not
	// write. That may be shared, and old is not changed.
	Merge func(obj, old T)
	// Keeps is what of the metadata a write leaves as it is, beside what Merge takes over:
	// who sends it does not own it.
	Keeps KeptMetadata
	// Validate replaces the resource's Validate for writes through this subresource.
	Validate func(obj, old T, errs *Errors)

	// Get and Set convert to and from Body for pure subresources with a body
	// (scale). With the verb create (rollback) the body is posted, Set changes
	// the object by it, and the answer is what Get makes of the stored object.
	Get func(obj T) runtime.Object
	Set func(obj T, body runtime.Object) error
	// Lacks tells who reads the Body of an object that it does not have what Get makes it of;
	// nil: every object has.
	Lacks func(obj T) error
	// Columns of kubectl get --subresource, of the Body, which is an Object then;
	// none: it cannot be shown so.
	Columns []Column[Object]

	// Handler answers the subresource.
	Handler Handler
}

// KeptMetadata is what of an object's metadata a subresource does not write.
type KeptMetadata uint8

// What may be kept.
const (
	KeepsNone     KeptMetadata = iota
	KeepsLabels                // the labels
	KeepsMetadata              // all that clients write: labels, annotations, finalizers and owners
)

// from has obj keep what it says of old.
func (k KeptMetadata) from(obj, old metav1.Object) {
	switch k {
	case KeepsLabels:
		obj.SetLabels(old.GetLabels())
	case KeepsMetadata:
		metav1.ResetObjectMetaForStatus(obj, old)
	}
}

// Body is the wire type of a subresource that is not the resource itself.
type Body struct {
	Group, Version, Kind string
	New                  func() runtime.Object
	// Also are further apiVersions that a body with a handler may have: they have
	// the same form.
	Also []string
}

// Version is one more group-version of a resource: a legacy version, or a
// second home (events.k8s.io). Storage always holds the Spec's own version.
type Version[T Object] struct {
	Group, Version string
	New            func() Object
	// Default fills unset fields as this version documents them, before To.
	Default func(obj Object)
	To      func(obj Object) (T, error) // to storage; may reuse parts of obj
	From    func(obj T) (Object, error) // must not change obj
	// Deprecated, if not empty, is sent as a Warning header with every answer,
	// e.g. "extensions/v1beta1 Deployment is deprecated in v1.9+, unavailable in v1.16+; use apps/v1 Deployment".
	Deprecated string
	// OffByDefault: the version is served only if --runtime-config says so, as alpha
	// versions are.
	OffByDefault bool
	// Prepare and Validate replace the Spec's for writes through this version,
	// where it has other rules (a selector that may still be changed).
	Prepare  func(obj, old T)
	Validate func(obj, old T, errs *Errors)
	// DefaultPropagation replaces the Spec's for deletes through this version.
	DefaultPropagation metav1.DeletionPropagation
	// Sub are subresources that only this version has, or has with another body
	// (the Scale of its own group). It serves the Spec's of other names too.
	Sub []Sub[T]

	// Live is what only a version of a Dynamic kind has; nil of others.
	Live *Live
}

// Unique is how values are kept unique in the cluster: who allocates them, and what takes them.
type Unique[T Object] struct {
	// Commit allocates values that must be unique in the cluster (cluster IPs, node
	// ports) together with the write. obj is nil on delete, old is nil on create.
	// It may be run again after a conflict, with obj as it was before the first run.
	Commit func(tx Tx, obj, old T) error
	// Taking, if not nil, says that the objects are how unique values are taken.
	Taking *Taking[T]
	// Offer, if not nil, says that the objects are where unique values are taken from.
	Offer *Offer[T]
}

// Offer says that an object has values of a class for Commit to take.
type Offer[T Object] struct {
	Class string // as Tx has it
	// Values are what is to be had of an object at present, in words that Commit reads
	// ("10.96.0.0/16").
	Values func(obj T) []string
}

// Taking says that an object takes a value of a class for another object: the one that it
// is named after. It is in no namespace.
type Taking[T Object] struct {
	Class string // as Tx has it
	// New is the object that takes a value. Its holder is the object that is being written.
	New func(value string, holder Holder) T
	// Holder is for which object a value is taken.
	Holder func(obj T) Holder
	// Made reports that an object was made by New, and not by a client: it goes when its
	// holder does not have the value.
	Made func(obj T) bool
}

// Holder names an object that has a unique value.
type Holder struct{ Group, Resource, Namespace, Name string }

// Tx is what Commit sees of the transaction that writes an object.
type Tx interface {
	// Allocate takes name in the class of unique values (for example class
	// "clusterip", name "10.96.0.10") for the object being written, in the same
	// transaction. It fails with [ErrAllocated] if another object holds it.
	Allocate(class, name string) error
	// AllocateAny takes a free value: it tries the values that candidates yields,
	// in order, and returns the one taken, or [ErrExhausted].
	AllocateAny(class string, candidates func(yield func(name string) bool)) (string, error)
	// Outside tells that name was asked for, and is none of those that there are to be had.
	Outside(class, name string)
	// Release gives name up with the write.
	Release(class, name string)
	// Offered is what the objects that have values of a class offer, those of the oldest
	// object first; ok is false if there are no such objects.
	Offered(class string) (values []string, ok bool)
	// Setting is the value that the server runs with of a flag that allocations depend
	// on ("service-cluster-ip-range"); empty if it is not set.
	Setting(flag string) string
}

// Status is the usual status subresource: the client writes status (and may
// write metadata that is not spec), everything else stays. copyBack copies into
// obj all but the status of old (spec, usually).
func Status[T Object](copyBack func(obj, old T)) Sub[T] {
	return Sub[T]{Name: "status", Merge: copyBack}
}

// Scale is the scale subresource over autoscaling/v1.
func Scale[T Object](get func(obj T) *autoscalingv1.Scale, set func(obj T, replicas int32)) Sub[T] {
	spec, status := autoscalingv1.ScaleSpec{}.SwaggerDoc(), autoscalingv1.ScaleStatus{}.SwaggerDoc()
	return Sub[T]{
		Name: "scale",
		Body: &Body{Group: "autoscaling", Version: "v1", Kind: "Scale", New: func() runtime.Object { return &autoscalingv1.Scale{} }},
		Get:  func(obj T) runtime.Object { return get(obj) },
		Set: func(obj T, body runtime.Object) error {
			set(obj, body.(*autoscalingv1.Scale).Spec.Replicas)
			return nil
		},
		Columns: each([]Column[*autoscalingv1.Scale]{
			{Name: "Desired", Type: "integer", Description: spec["replicas"], Value: func(s *autoscalingv1.Scale) any { return int64(s.Spec.Replicas) }},
			{Name: "Available", Type: "integer", Description: status["replicas"], Value: func(s *autoscalingv1.Scale) any { return int64(s.Status.Replicas) }},
		}, Column[*autoscalingv1.Scale].erase),
	}
}
