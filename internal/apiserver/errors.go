package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/timeouts"
	"github.com/kemudi/kemudi/internal/store"
)

// Every error that clients see is made here or by the library's constructors,
// so that a text can be found and that reason and code agree.

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

func notFound(c *call) error {
	return apierrors.NewNotFound(c.res.groupResource(), c.name)
}

func conflict(c *call, why error) error {
	return apierrors.NewConflict(c.res.groupResource(), c.name, why)
}

// errModified is the conflict that every client knows by heart.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

func (v *served) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: v.gvk.Group, Resource: v.def.Plural}
}

// bodyError is why a request's body was not read.
func bodyError(err error, limit int64) error {
	switch {
	case errors.Is(err, timeouts.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	case errors.Is(err, timeouts.ErrTime):
		return apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	}
	return badRequest("read request body: %v", err)
}

// genericNotFound answers paths that no resource has.
func genericNotFound() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

func methodNotAllowed() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{},
	}}
}

func notAcceptable(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(accepted, ", "),
	}}
}

func unsupportedMedia(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

// forbidden says in upstream's words what the user may not do.
func forbidden(a authorizer.Attributes, reason string) error {
	var b strings.Builder
	user := ""
	if u := a.GetUser(); u != nil {
		user = u.GetName()
	}
	if !a.IsResourceRequest() {
		fmt.Fprintf(&b, "User %q cannot %s path %q", user, a.GetVerb(), a.GetPath())
		if reason != "" {
			b.WriteString(": " + reason)
		}
		err := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(b.String()))
		err.ErrStatus.Message = "forbidden: " + b.String()
		return err
	}
	plural := a.GetResource()
	if a.GetSubresource() != "" {
		plural += "/" + a.GetSubresource()
	}
	fmt.Fprintf(&b, "User %q cannot %s resource %q in API group %q", user, a.GetVerb(), plural, a.GetAPIGroup())
	if ns := a.GetNamespace(); ns != "" {
		fmt.Fprintf(&b, " in the namespace %q", ns)
	} else {
		b.WriteString(" at the cluster scope")
	}
	if reason != "" {
		b.WriteString(": " + reason)
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}, a.GetName(), errors.New(b.String()))
}

// statusOf turns any error into what is answered. Errors that are not for
// clients become an internal error; their text is kept, as upstream does.
func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		status := api.Status()
		if status.Status == "" {
			status.Status = metav1.StatusFailure
		}
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
		return &status
	}
	switch {
	case errors.Is(err, request.ErrNotAcceptable):
		return statusOf(notAcceptable(request.Types))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		status := apierrors.NewTimeoutError("request did not complete within requested timeout - "+err.Error(), 0).ErrStatus
		return &status
	case errors.Is(err, store.ErrDisk):
		return &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: "InsufficientStorage", Message: err.Error(),
		}
	case errors.Is(err, store.ErrCompacted):
		status := apierrors.NewResourceExpired("The provided resource version is too old.").ErrStatus
		return &status
	}
	status := apierrors.NewInternalError(err).ErrStatus
	return &status
}
