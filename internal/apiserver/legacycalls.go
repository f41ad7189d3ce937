package apiserver

import (
	"net"
	"net/http"

	"github.com/kemudi/kemudi/internal/apiserver/legacy"
	"github.com/kemudi/kemudi/internal/apiserver/request"
)

// noteLegacy notes who makes a call that is of a deprecated version.
func (s *Server) noteLegacy(r *http.Request, c legacy.Call) {
	if s.o.Legacy == nil || callerOf(r.Context()) != nil {
		return
	}
	c.Agent, c.User, c.Address = r.UserAgent(), stateOf(r).user.GetName(), r.RemoteAddr
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		c.Address = host
	}
	s.o.Legacy.Note(c)
}

// noteOff notes who asks for a version that this server knows and does not serve, if it is an old one.
func (s *Server) noteOff(r *http.Request, in *request.Info) {
	if s.o.Legacy == nil {
		return
	}
	for _, d := range s.o.Defs {
		for _, v := range d.Versions {
			if v.Group == in.Group && v.Version == in.Version && d.Plural == in.Plural && v.Deprecated != "" {
				s.noteLegacy(r, legacy.Call{
					Caller:  legacy.Caller{Group: v.Group, Version: v.Version, Resource: d.Plural, Subresource: in.Sub},
					Removed: removedIn(v.Deprecated), Off: true,
				})
				return
			}
		}
	}
}
