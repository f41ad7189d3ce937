//go:build !race

// Megabytes of routes are read, checked and packed again and again, which takes minutes under the race detector; what runs at once is in
// the scripts of gateway_test.go.

package gateway_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/sim"
)

const tooMuch = `# Gateways
# Balancers: 192.0.2.0/28
apply node.yaml
patch node/a '{"status":{"nodeInfo":{"kubeletVersion":"v1.37.2+kemudi.1"},"addresses":[{"type":"InternalIP","address":"198.51.100.1"}],"conditions":[{"type":"Ready","status":"True"}]}}' sub=status
advance 5s
raw POST /apis/gateway.networking.k8s.io/v1/namespaces/default/gateways much.yaml
raw POST /apis/gateway.networking.k8s.io/v1/namespaces/default/gateways little.yaml
raw POST /apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes large-0.yaml
advance 5s
raw GET /apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/much
stdout '"reason":"Programmed","status":"True","type":"Programmed"'
# With another route it is more than edges can be told: the Gateway says so, and keeps what they know.
raw POST /apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes large-1.yaml
advance 5s
raw GET /apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/much
stdout '"message":"the routes and certificates of the Gateway are [0-9]+ bytes, and packed [0-9]+, of which edges can be told 268435456 and 921600: what they were told last stays in force; spread them over several Gateways","observedGeneration":1,"reason":"NoResources","status":"False","type":"Programmed"'
raw GET /api/v1/namespaces/kube-system/secrets
stdout '"kemudi.io/gateway":"default/much"'
# The others go on, a new one too that has too much from its beginning.
raw POST /apis/gateway.networking.k8s.io/v1/namespaces/default/gateways new.yaml
raw POST /apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes route.yaml
advance 5s
raw GET /apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/new
stdout '"reason":"NoResources"'
raw GET /apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/little
stdout '"attachedRoutes":1'
stdout '"reason":"Programmed","status":"True","type":"Programmed"'
raw GET /api/v1/namespaces/kube-system/secrets
stdout '"kemudi.io/gateway":"default/little"'
stdout '"kemudi.io/gateway":"default/much"'
! stdout '"kemudi.io/gateway":"default/new"'
raw DELETE /apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/large-0
advance 5s
raw GET /apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/much
stdout '"reason":"Programmed","status":"True","type":"Programmed"'
raw DELETE /api/v1/nodes/a
-- node.yaml --
apiVersion: v1
kind: Node
metadata: {name: a}
-- route.yaml --
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: little}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
`

// A table is as large as its bytes cannot be packed: values of headers that say nothing.
func TestAGatewayWithMoreThanEdgesCanBeToldSaysSoAndLeavesOthers(t *testing.T) {
	var b strings.Builder
	b.WriteString(tooMuch)
	for _, name := range []string{"much", "little", "new"} {
		fmt.Fprintf(&b, "-- %s.yaml --\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: %s}\nspec:\n  gatewayClassName: kemudi\n  listeners: [{name: http, port: 80, protocol: HTTP}]\n", name, name)
	}
	n := 0
	for i := range 2 {
		fmt.Fprintf(&b, "-- large-%d.yaml --\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: large-%d}\nspec:\n  parentRefs: [{name: much}, {name: new}]\n  rules:\n", i, i)
		for range 14 {
			b.WriteString("  - filters:\n    - type: RequestHeaderModifier\n      requestHeaderModifier:\n        set:\n")
			for h := range 16 {
				var value []byte
				for len(value) < 3000 {
					n++
					sum := sha256.Sum256(fmt.Append(nil, n))
					value = append(value, sum[:]...)
				}
				fmt.Fprintf(&b, "        - {name: h%d, value: %s}\n", h, base64.RawURLEncoding.EncodeToString(value))
			}
		}
	}
	file := filepath.Join(t.TempDir(), "much.txt")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	sim.Test(t, file)
}
