package worker

import (
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// Shared is the API as all parts of a worker see it. Its own Node is read by several, and
// the others by those who route to them: there is one cache, of all.
type Shared struct{ client.Transport }

// Cache returns the cache of what is in the scope.
func (t Shared) Cache(def *resource.Def, scope string) *cache.Cache {
	if def == core.Nodes.Def {
		scope = ""
	}
	return t.Transport.Cache(def, scope)
}
