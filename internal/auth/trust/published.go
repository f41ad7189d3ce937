package trust

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// scope is all that is looked at, and all that who looks need be allowed to.
const scope = "metadata.namespace=" + metav1.NamespaceSystem + ",metadata.name=" + ConfigMap

// Published is what an API server says of whom it believes, as it is now.
type Published struct {
	objects client.Reader[*corev1.ConfigMap]

	mu struct {
		sync.Mutex
		revision string
		trust    Trust
	}
}

// Read has it read by t, whose user must be allowed to get, list and watch that one ConfigMap: upstream
// has the role extension-apiserver-authentication-reader for it.
func Read(t client.Transport) *Published {
	return &Published{objects: client.Cached(t, core.ConfigMaps, scope)}
}

// Known is closed when the API server has said it, or that there is nothing.
func (p *Published) Known() <-chan struct{} { return p.objects.Cache.Synced() }

// Get returns it, and a text that is another one when it has changed. Before it is known nobody is
// believed; what cannot be read leaves it as it was.
func (p *Published) Get() (t Trust, revision string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cm, ok := p.objects.Get(metav1.NamespaceSystem, ConfigMap); ok && cm.ResourceVersion != p.mu.revision {
		p.mu.revision = cm.ResourceVersion
		if now, err := Parse(cm.Data); err == nil {
			p.mu.trust = now
		}
	}
	return p.mu.trust, p.mu.revision
}
