package admissionregistration

import (
	"fmt"
	"strings"

	"github.com/kemudi/kemudi/internal/resource"
)

// StaticSuffix is the end of the names of those webhooks, policies and bindings that lie as files beside a server,
// and of no others: what is told of one leaves no doubt where it is from.
const StaticSuffix = ".static.k8s.io"

// apiName refuses the names of what lies as files.
func apiName(name string, prefix bool) []string {
	wrong := resource.DNS1123Subdomain(name, prefix)
	if strings.HasSuffix(name, StaticSuffix) {
		wrong = append(wrong, fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", StaticSuffix))
	}
	return wrong
}
