package prefix_test

import (
	"testing"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/store/prefix"
	"github.com/kemudi/kemudi/internal/store/storetest"
)

func TestStorePassesTheSuite(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return prefix.Over(mem.New(mem.Options{}), "/others") })
}

func TestKeysLieBelowThePrefix(t *testing.T) {
	for at, want := range map[string]string{
		"/kubernetes.io": "/kubernetes.io/pods/default/a", "kubernetes.io/": "/kubernetes.io/pods/default/a", "/": "/pods/default/a", "/registry": "/registry/pods/default/a",
	} {
		under := mem.New(mem.Options{})
		s := prefix.Over(under, at)
		const key = "/registry/pods/default/a"
		if _, err := s.Txn(t.Context(), store.Txn{Conds: []store.Cond{{Key: key}}, Ops: []store.Op{{Key: key, Value: []byte("x")}}}); err != nil {
			t.Fatal(err)
		}
		if kv, _, err := under.Get(t.Context(), want); err != nil || string(kv.Value) != "x" {
			t.Errorf("--etcd-prefix %s: %s has %q, %v; want what was written", at, want, kv.Value, err)
		}
		page, err := s.List(t.Context(), "/registry/pods/", store.ListOptions{From: key})
		if err != nil || len(page.KVs) != 1 || page.KVs[0].Key != key {
			t.Errorf("--etcd-prefix %s: listed %+v, %v; want %s", at, page.KVs, err, key)
		}
		res, err := s.Txn(t.Context(), store.Txn{Conds: []store.Cond{{Key: key}}, Ops: []store.Op{{Key: key}}})
		if err != nil || res.OK || len(res.Now) != 1 || res.Now[0].Key != key {
			t.Errorf("--etcd-prefix %s: a condition that does not hold told %+v, %v; want what %s has", at, res, err, key)
		}
	}
}
