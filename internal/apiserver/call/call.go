package call

import (
	"errors"
	"slices"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Call is one request for a resource, from HTTP or from the same process.
type Call struct {
	Verb            string
	Resource        *served.Resource
	Sub             *resource.SubDef // nil: the object itself
	Namespace, Name string

	User  user.Info
	Agent string         // the client's user agent
	Audit *audit.Request // nil: it is not audited
	Trace Trace

	DryRun     bool
	Manager    string // field manager, as given
	Validation string // of fields: Ignore, Warn or Strict; empty: Warn
	Force      *bool  // apply: take over conflicting fields

	Warnings []string

	// What else the call says, by its verb.
	Rev    string                // get: resourceVersion
	List   *metav1.ListOptions   // list, watch, deletecollection
	Delete *metav1.DeleteOptions // delete, deletecollection
	Patch  Document
	Body   runtime.Object // create, update: at the storage version; or what the subresource or the action is sent

	// Again reads Body anew as it was sent: who writes it changes it. Nil: it was
	// handed over as an object.
	Again func() (runtime.Object, error)
}

// Warn tells the client something, once.
func (c *Call) Warn(text string) {
	if !slices.Contains(c.Warnings, text) {
		c.Warnings = append(c.Warnings, text)
	}
}

// Key is the object's key in the store.
func (c *Call) Key() string { return c.Resource.Def.Key(c.Namespace, c.Name) }

// CacheKey is the object's key in the cache.
func (c *Call) CacheKey() string {
	if !c.Resource.Def.Namespaced {
		return c.Name
	}
	return cache.Key(c.Namespace, c.Name)
}

// Has reports whether what the call is about, the subresource or the resource
// itself, has the verb.
func (c *Call) Has(verb string) bool {
	verbs := c.Resource.Def.Verbs
	if c.Sub != nil {
		verbs = c.Sub.Verbs
	}
	return verbs.Has(resource.Verb(verb))
}

// Ending refuses to make an object of a kind whose definition goes, by whichever verb; nil: it may be made.
func (c *Call) Ending() error {
	if d := c.Resource.Def; d.Dynamic != nil && !d.Verbs.Has(resource.Create) {
		return apierrors.NewForbidden(d.GroupResource(), c.Name, errors.New("create not allowed while custom resource definition is terminating"))
	}
	return nil
}

// SubName is the name of the subresource; empty for the object itself.
func (c *Call) SubName() string {
	if c.Sub == nil {
		return ""
	}
	return c.Sub.Name
}

// FieldManager is who owns the fields that the call sets: the name given, or
// the part of the user agent before the first slash.
func (c *Call) FieldManager() string {
	if c.Manager != "" {
		return c.Manager
	}
	name, _, _ := strings.Cut(c.Agent, "/")
	var b strings.Builder
	for _, r := range name {
		if unicode.IsPrint(r) && b.Len()+len(string(r)) <= 128 {
			b.WriteRune(r)
		}
	}
	if b.Len() == 0 {
		return "unknown"
	}
	return b.String()
}

// Result is what comes of a call about one object: one of item and body.
type Result struct {
	Item *cache.Item
	Body runtime.Object // what stands for an object, or is none
	Gone bool           // item is the last state of an object that has been deleted
	Code int            // of HTTP; 0: 200
}

// Shown is an object as the call's subresource has it.
func (c *Call) Shown(it *cache.Item) Result {
	if c.Sub != nil && c.Sub.Body != nil {
		return Result{Body: c.Sub.Get(it.Object)}
	}
	return Result{Item: it}
}

// Attributes are the call as the authorizer sees it.
func (c *Call) Attributes(verb string) *authorizer.AttributesRecord {
	namespace := c.Namespace
	if c.Resource.Def.IsNamespace {
		namespace = c.Name
	}
	return &authorizer.AttributesRecord{
		User: c.User, Verb: verb, Namespace: namespace,
		APIGroup: c.Resource.GVK.Group, APIVersion: c.Resource.GVK.Version, Resource: c.Resource.Def.Plural,
		Subresource: c.SubName(), Name: c.Name, ResourceRequest: true,
	}
}

// Values of the fieldValidation parameter.
const (
	IgnoreFields = metav1.FieldValidationIgnore
	StrictFields = metav1.FieldValidationStrict
)

// Handler is the code behind the call.
func (c *Call) Handler() resource.Handler {
	if c.Sub != nil {
		return c.Sub.Handler
	}
	return c.Resource.Def.Handler
}

// Columns are what a table shows of the call's objects: the resource's, or those
// that stand for them in the subresource.
func (c *Call) Columns() []resource.Column[resource.Object] {
	if c.Sub != nil && c.Sub.Body != nil {
		return c.Sub.Columns
	}
	if v := c.Resource.Version; v != nil && v.Live != nil {
		return v.Live.Columns
	}
	return c.Resource.Def.Columns
}

// Rows are what a table shows of the call's objects beyond their columns.
func (c *Call) Rows() resource.Rows[resource.Object] {
	if c.Sub != nil && c.Sub.Body != nil {
		return resource.Rows[resource.Object]{}
	}
	return c.Resource.Def.Rows
}

// FitNamespace puts a new object into the namespace of the request, or refuses
// one that names another.
func (c *Call) FitNamespace(obj metav1.Object) error {
	if !c.Resource.Def.Namespaced {
		if obj.GetNamespace() != "" && c.Namespace == "" {
			obj.SetNamespace("")
		}
		return nil
	}
	switch obj.GetNamespace() {
	case "":
		obj.SetNamespace(c.Namespace)
	case c.Namespace:
	default:
		return refusal.BadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// RequireName is FitName for what a client says an object is to be: it must have its name.
func (c *Call) RequireName(obj metav1.Object) error {
	given := obj.GetName()
	if err := c.FitName(obj); err != nil || given != "" {
		return err
	}
	return refusal.BadRequest("the name of the object (%s based on URL) was undeterminable: name must be provided", c.Name)
}

// FitName refuses an object that is not the one the request names, and fills
// in what it leaves open.
func (c *Call) FitName(obj metav1.Object) error {
	if c.Resource.Def.Namespaced {
		if err := c.FitNamespace(obj); err != nil {
			return err
		}
	}
	switch name := obj.GetName(); name {
	case "":
		obj.SetName(c.Name)
	case c.Name:
	default:
		return refusal.BadRequest("the name of the object (%s) does not match the name on the URL (%s)", name, c.Name)
	}
	return nil
}
