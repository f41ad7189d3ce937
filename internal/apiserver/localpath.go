package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/auth"
)

// callerKey is the key of the user who makes an HTTP request within the process.
type callerKey struct{}

// callerOf is who makes a request within the process; nil if it comes from outside.
func callerOf(ctx context.Context) user.Info {
	u, _ := ctx.Value(callerKey{}).(user.Info)
	return u
}

// raw sends a GET for a path through all that requests from outside pass, without a
// connection: who answers may be another server.
func (l *local) raw(ctx context.Context, path string) (runtime.Object, error) {
	req, err := http.NewRequestWithContext(context.WithValue(auth.Within(ctx, l.user), callerKey{}, l.user), http.MethodGet, path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	req.Header.Set("Accept", request.JSON)
	req.Header.Set("User-Agent", l.agent)
	a := &heldAnswer{header: http.Header{}, code: http.StatusOK}
	l.s.handler.ServeHTTP(a, req)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if a.code < 200 || a.code > 299 {
		return nil, a.refusal()
	}
	return &runtime.Unknown{Raw: a.body.Bytes(), ContentType: runtime.ContentTypeJSON}, nil
}

// heldAnswer is an answer that stays within the process.
type heldAnswer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

var _ http.ResponseWriter = (*heldAnswer)(nil)

// Header returns the headers of the answer.
func (k *heldAnswer) Header() http.Header { return k.header }

// WriteHeader notes the code of the answer.
func (k *heldAnswer) WriteHeader(code int) { k.code = code }

// Write keeps a part of the answer.
func (k *heldAnswer) Write(p []byte) (int, error) { return k.body.Write(p) }

// refusal is the error that the answer tells of, as a client on another machine reads it.
func (k *heldAnswer) refusal() error {
	var status metav1.Status
	if json.Unmarshal(k.body.Bytes(), &status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return apierrors.NewGenericServerResponse(k.code, "get", schema.GroupResource{}, "", k.body.String(), 0, true)
}
