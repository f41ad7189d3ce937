package read

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/resource"
)

// Stored is what a reader needs to know of the store beyond what it holds: which values cannot be read, by their keys,
// and what has happened before the logs of the caches begin.
type Stored interface {
	Unreadable(key string) error
	UnreadableBelow(prefix string) []string
	// Recollect has the log of def's cache reach back to a revision, or answers cache.ErrTooOld.
	Recollect(ctx context.Context, def *resource.Def, after int64) error
}

// corrupt says, in upstream's words, that what is stored at a key cannot be read.
func corrupt(key string, why error) error {
	return fmt.Errorf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w", key, why)
}

// readable refuses a call whose object is there and cannot be read.
func (r *Reader) readable(c *call.Call) error {
	if r.Stored == nil || c.Name == "" {
		return nil
	}
	if err := r.Stored.Unreadable(c.Key()); err != nil {
		return apierrors.NewInternalError(corrupt(c.Key(), err))
	}
	return nil
}

// causesMost is how many objects that cannot be read a list names.
const causesMost = 100

// Readable refuses a call for what is selected if something of that may be what cannot be read.
func (r *Reader) Readable(c *call.Call, sel *Selection) error {
	if r.Stored == nil {
		return nil
	}
	prefix := c.Resource.Def.Key(sel.namespace, "")
	keys := r.Stored.UnreadableBelow(prefix)
	if len(keys) > 0 && sel.single(c) {
		c := *c
		c.Namespace, c.Name = sel.namespace, sel.name
		return r.readable(&c)
	}
	var causes []metav1.StatusCause
	for _, key := range keys {
		if err := r.Stored.Unreadable(key); err != nil && len(causes) < causesMost {
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse, Field: key, Message: corrupt(key, err).Error()})
		}
	}
	if len(causes) == 0 {
		return nil
	}
	message := fmt.Sprintf("failed to read one or more %s from the storage: %s", c.Resource.Def.GroupResource(), causes[0].Message)
	if more := len(keys) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	if len(keys) > causesMost {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeTooMany, Message: "too many errors, the list is truncated"})
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonStoreReadError, Message: message,
		Details: &metav1.StatusDetails{Group: c.Resource.Def.Group, Kind: c.Resource.Def.Plural, Name: prefix, Causes: causes},
	}}
}
