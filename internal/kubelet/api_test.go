package kubelet

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
)

// Short names for what tests of this package use most.

type memAPI = apitest.API

func newMemAPI(t *testing.T) *memAPI { t.Helper(); return apitest.New(t) }

func pods(m *memAPI) client.Client[*v1.Pod] { return apitest.Pods(m) }

func createPod(t *testing.T, m *memAPI, name, spec string) *v1.Pod {
	t.Helper()
	return apitest.CreatePod(t, m, name, spec)
}

func getPod(t *testing.T, m *memAPI, name string) *v1.Pod {
	t.Helper()
	return apitest.GetPod(t, m, name)
}

func deletePod(t *testing.T, m *memAPI, name string, grace int64) {
	t.Helper()
	apitest.DeletePod(t, m, name, grace)
}
