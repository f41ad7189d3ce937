package action

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Actions are the parts of the server that actions work with. Its methods
// answer one request each and may be called concurrently.
type Actions struct {
	// Cache is the one cache of a kind's objects; nil if there is none.
	Cache func(def *resource.Def) *cache.Cache
	// Authenticator says whose token it is, if it is an authenticator.Token.
	Authenticator authenticator.Request
	// Authorizer says who may do what; nil: everybody everything.
	Authorizer authorizer.Authorizer
	// Tokens signs tokens of service accounts; nil: none are issued.
	Tokens *authn.Issuer
}

// Func answers the object of a request (q.Body, nil for a get) with another.
// An answer whose kind is not set is of the body's kind.
type Func func(ctx context.Context, q *Request) (runtime.Object, error)

// Request is one call of an action, from HTTP or from the same process.
type Request struct {
	// Def is the resource, Version the one it was called in (nil: the storage version).
	Def             *resource.Def
	Version         *resource.VersionDef
	Namespace, Name string

	User user.Info
	// DryRun: nothing is to be stored. An action may set it before it asks the API.
	DryRun bool
	Body   runtime.Object
	API    API
}

// API is what an action asks of the server on behalf of the request's user.
type API interface {
	// Get reads the object that the request names, in its newest state.
	Get(ctx context.Context) (resource.Object, error)
	// Fit refuses a body that names another object than the request does, and
	// fills in what it leaves open.
	Fit(body metav1.Object) error
	// Admit asks admission whether the body may have its effect.
	Admit(ctx context.Context, body runtime.Object) error
	// Write carries a change of an object to a committed revision, and returns
	// the object that was stored.
	Write(ctx context.Context, ch Change) (resource.Object, error)
	// Delete deletes the object that the request names.
	Delete(ctx context.Context, o *metav1.DeleteOptions) error
}

// Change is a change of one stored object.
type Change struct {
	// Def and Name say of which object, in the request's namespace. Without a Def
	// it is the one that the request names.
	Def  *resource.Def
	Name string
	// If are conditions on the object as it is stored.
	If metav1.Preconditions
	// Leaving says that the object is about to be deleted: a client is told of it as
	// of a deletion where If is not so.
	Leaving bool
	// Own is the server's own change: it is neither admitted nor validated, and
	// no manager gets its fields.
	Own bool
	// Make returns a new object, made of what is stored. It may be called again
	// when somebody else was faster.
	Make func(old resource.Object) (resource.Object, error)
}

// done answers that what was asked for has happened.
func done() runtime.Object {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
	}
}

// bodyOf is what was sent. Callers in the process may have sent anything.
func bodyOf[T runtime.Object](q *Request) (T, error) {
	body, ok := q.Body.(T)
	if !ok {
		return body, apierrors.NewInternalError(fmt.Errorf("%s of %s: got a %T", q.Def, q.Name, q.Body))
	}
	return body, nil
}
