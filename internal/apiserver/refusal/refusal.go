package refusal

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
	"github.com/kemudi/kemudi/internal/store"
)

// BadRequest says what is wrong with what a client sent.
func BadRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// NotFound answers paths that no resource has.
func NotFound() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

// MethodNotAllowed answers verbs that a resource or subresource does not have.
func MethodNotAllowed() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{},
	}}
}

// NotAcceptable answers who accepts none of the media types that there are.
func NotAcceptable(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(accepted, ", "),
	}}
}

// NoRepresentation answers who accepts none of the media types that a path has, whatever the form.
func NoRepresentation(types []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "406: Not Acceptable\n\nAvailable representations: " + strings.Join(types, ", "), Details: &metav1.StatusDetails{},
	}}
}

// OtherShape answers who wants the metadata of an object where there is a list, or the other way round.
func OtherShape(goType string, list bool) error {
	err := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (*%s)", goType),
	}}
	if list {
		err.ErrStatus.Message = fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%sList)", goType)
	}
	return err
}

// UnsupportedMedia answers a body of a media type that is not read.
func UnsupportedMedia(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

// NoPatch answers a patch of a media type that a built-in kind does not take.
func NoPatch() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "415: Unsupported Media Type", Details: &metav1.StatusDetails{},
	}}
}

// Forbidden says in upstream's words what the user may not do.
func Forbidden(a authorizer.Attributes, reason string) error {
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

// Unsettled answers who has waited too long for a server that has just begun.
func Unsettled() error {
	err := apierrors.NewServiceUnavailable("the server has just begun and does not know yet what is in its store, please try again later")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// retryMajority is how many seconds a client waits that finds no majority of the store: an
// election takes no longer.
const retryMajority = 1

// Status turns any error into what is answered. Errors that are not for
// clients become the code 500 without a reason; their text is kept, as upstream does.
func Status(err error) *metav1.Status {
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
		return Status(NotAcceptable(request.Types))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		status := apierrors.NewTimeoutError("request did not complete within requested timeout - "+err.Error(), 0).ErrStatus
		return &status
	case errors.Is(err, store.ErrDisk):
		return &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: "InsufficientStorage", Message: err.Error(),
		}
	case errors.Is(err, store.ErrNoMajority):
		status := apierrors.NewServiceUnavailable(err.Error()).ErrStatus
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryMajority}
		return &status
	case errors.Is(err, store.ErrUnknown): // not to be sent again by itself: it may have been done
		status := apierrors.NewTimeoutError("request timed out - "+err.Error(), 0).ErrStatus
		return &status
	case errors.Is(err, store.ErrCompacted):
		status := apierrors.NewResourceExpired("The provided resource version is too old.").ErrStatus
		return &status
	}
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
}
