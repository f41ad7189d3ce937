package client

import (
	"k8s.io/client-go/kubernetes/scheme"
)

// kinds knows the kinds of all built-in Go types.
var kinds = scheme.Scheme
