package cluster

import (
	"context"
	"slices"
	"strconv"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/inquiry"
	"github.com/kemudi/kemudi/internal/rawconn"
	"github.com/kemudi/kemudi/internal/store/etcd"
)

// answers tells other servers how far the store is, by GET.
func (m *seats) answers(_ context.Context, q apiserver.PlainRequest) (any, error) {
	if !slices.Contains(q.User.GetGroups(), user.SystemPrivilegedGroup) {
		return nil, refusal.BadRequest("only servers ask each other how far the store is")
	}
	asker, err := strconv.ParseUint(q.Query.Get("asker"), 16, 64)
	if err != nil {
		return nil, refusal.BadRequest("asker: want the ID of a member of the store, in hexadecimal")
	}
	return inquiry.Handler(func(ctx context.Context) (etcd.Standing, error) { return m.store.Standing(ctx, asker) }), nil
}

// asker asks other servers.
func (s *server) asker() *inquiry.Asker {
	return &inquiry.Asker{Others: nodes{s}.others, Caller: func() rawconn.Caller {
		return rawconn.Caller{CA: s.pki.CA.Pool(), Certificate: s.pki.KubeletClientCertificate}
	}}
}
