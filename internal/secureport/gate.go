package secureport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/auth/delegated"
)

// gate lets those through who may.
type gate struct {
	who   authenticator.Request
	may   *delegated.Rights
	allow []string
	log   *slog.Logger
	next  http.Handler
}

// ServeHTTP lets the request through, or answers as upstream's parts do.
func (t *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache, private")
	who, ok, err := t.who.AuthenticateRequest(r)
	if err != nil || !ok {
		if err != nil {
			t.log.DebugContext(r.Context(), "authentication failed", "err", err)
		}
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	allowed, err := t.allowed(r.Context(), who.User, r)
	switch {
	case allowed:
		r.Header.Del("Authorization")
		t.next.ServeHTTP(w, r)
	case err != nil:
		t.log.WarnContext(r.Context(), "authorization failed", "user", who.User.GetName(), "err", err)
		refuse(w, apierrors.NewInternalError(errors.New("the API server does not say who may do this")))
	default:
		refuse(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: fmt.Sprintf("forbidden: User %q cannot %s path %q", who.User.GetName(), strings.ToLower(r.Method), r.URL.Path),
		}})
	}
}

// allowed says whether somebody may use a path. Administrators may without the API server being asked,
// so that a part can be looked at while that is away.
func (t *gate) allowed(ctx context.Context, u user.Info, r *http.Request) (bool, error) {
	for _, path := range t.allow {
		begin, all := strings.CutSuffix(path, "*")
		if r.URL.Path == path || all && strings.HasPrefix(r.URL.Path, begin) {
			return true, nil
		}
	}
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return true, nil
	}
	return t.may.May(ctx, u, delegated.Access{Verb: strings.ToLower(r.Method), Path: r.URL.Path})
}

// refuse answers with an error as the API has it.
func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(&status) // an error means that the client has gone
}
