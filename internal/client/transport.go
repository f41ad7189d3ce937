package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Transport carries requests of one user to the API. Errors are API status
// errors (k8s.io/apimachinery/pkg/api/errors tells them apart). All methods may
// be called concurrently.
type Transport interface {
	// Do performs one request that is about one object, or a deletecollection
	// (which answers nil).
	Do(ctx context.Context, r *Request) (runtime.Object, error)

	// List performs a list. The objects are of the resource's own version.
	List(ctx context.Context, r *Request) (List, error)

	// Cache returns the process's one cache of the resource and keeps it fed for
	// as long as the transport lives. scope is a field selector that names all the
	// caller needs to see (for example "spec.nodeName=n1"): a remote transport
	// fetches only that, a local one gives the whole cache, so callers must still
	// narrow by index. Wait for Synced before use.
	Cache(def *resource.Def, scope string) *cache.Cache

	// Hold is Cache for a scope that is needed for a while, such as one object that a
	// pod names. It is kept fed until all who hold it have called release, unless Cache
	// has been called for it; then a remote transport lets it go, and who holds the scope
	// again gets another cache. release may be called more than once. What has been
	// released stays as it is, or is fed on where it is shared.
	Hold(def *resource.Def, scope string) (c *cache.Cache, release func())
}

// Request is one call. Options that do not belong to the verb are ignored.
type Request struct {
	// Path, if set, is what a GET is sent for, with its query ("/apis/group/version/..."):
	// of what others serve through this API, and no Def describes. All else but the verb get
	// is left out then. The answer is a [runtime.Unknown] that holds JSON.
	Path string

	Verb            string // get, list, create, update, patch, delete, deletecollection
	Def             *resource.Def
	Sub             string // subresource; empty: the object itself
	Namespace, Name string

	Object    runtime.Object // create, update: handed over
	Patch     []byte
	PatchType types.PatchType

	DryRun       bool
	FieldManager string // empty: the user agent of the transport
	Force        *bool  // apply: take conflicting fields over
	List         metav1.ListOptions
	Delete       metav1.DeleteOptions
}

// List is the answer to a list request.
type List struct {
	Items           []resource.Object
	ResourceVersion string
	Continue        string
	Remaining       *int64
}
