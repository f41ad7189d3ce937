package sim

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// asAdmin lets everybody who sends a script's HTTP requests do everything.
func asAdmin(o *apiserver.Options, _ *watchcache.Set) error {
	o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "script", Groups: []string{user.SystemPrivilegedGroup}}}, true, nil
	})
	return nil
}

// raw sends an HTTP request as a client would: for what the other commands do
// not say, such as versions that are not those of storage.
func raw(ctx context.Context, r *run, args []string) error {
	var body []byte
	switch len(args) {
	case 2:
	case 3:
		doc, ok := r.files[args[2]]
		if !ok {
			return fmt.Errorf("there is no file %s", args[2])
		}
		var err error
		if body, err = yaml.YAMLToJSON(doc); err != nil {
			return fmt.Errorf("%s: %w", args[2], err)
		}
	default:
		return errArgs
	}
	req := httptest.NewRequestWithContext(ctx, args[0], args[1], bytes.NewReader(body))
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	if args[0] == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer := httptest.NewRecorder()
	r.c.Server().Handler().ServeHTTP(answer, req)
	r.stdout = answer.Body.String()
	if answer.Code >= http.StatusBadRequest {
		return fmt.Errorf("%d: %s", answer.Code, r.stdout)
	}
	return nil
}
