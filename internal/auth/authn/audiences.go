package authn

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// ForAudiences asks t, whose tokens say nothing of whom they are for, about tokens for one of these
// audiences alone, or for nobody in particular.
func ForAudiences(own []string, t authenticator.Token) authenticator.Token {
	return &forAudiences{own: own, of: t}
}

type forAudiences struct {
	own []string
	of  authenticator.Token
}

// AuthenticateToken says whose token it is.
func (f *forAudiences) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	wanted, asked := authenticator.AudiencesFrom(ctx)
	both := intersect(wanted, f.own)
	if asked && len(both) == 0 {
		return nil, false, nil
	}
	res, ok, err := f.of.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	return &authenticator.Response{User: res.User, Audiences: both}, true, nil
}
