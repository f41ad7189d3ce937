package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/test/wait"
)

// aPrivateIngress lets in who is in a Secret: ann, with the password secret.
const aPrivateIngress = `
apiVersion: v1
kind: Secret
metadata: {name: users}
stringData: {auth: "ann:$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0"}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: private, annotations: {nginx.ingress.kubernetes.io/auth-type: basic, nginx.ingress.kubernetes.io/auth-secret: users}}
spec: {rules: [{host: private.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
`

// asksForPasswords has the edges of nodes let in who has the password of a private Ingress, and nobody else:
// each node reads the Secret, which only the Ingress names.
func asksForPasswords(t *testing.T, from *nettest.Host, nodes ...string) {
	t.Helper()
	for _, ip := range nodes {
		for password, want := range map[string]int{"secret": http.StatusOK, "other": http.StatusUnauthorized} {
			wait.Until(t, func() error {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ip+"/", nil)
				if err != nil {
					return err
				}
				r.Host = "private.com"
				r.SetBasicAuth("ann", password)
				res, err := httpClient(from).Do(r)
				if err != nil {
					return err
				}
				defer res.Body.Close()
				if res.StatusCode != want {
					return fmt.Errorf("node %s, password %q: got %s, want %d", ip, password, res.Status, want)
				}
				return nil
			})
		}
	}
}
