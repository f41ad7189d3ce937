package acme

import (
	"fmt"
	"net/mail"
	"net/url"
)

// LetsEncrypt is the word of --acme-server for the authority of that name.
const LetsEncrypt = "letsencrypt"

// letsEncrypt is its directory.
const letsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

// Options say who signs. The zero value is nobody.
type Options struct {
	Server string // --acme-server: the URL of its directory, or LetsEncrypt
	Email  string // --acme-email: whom it may write to; empty: nobody
	CAFile string // --acme-ca-file: who signs its own certificate; empty: an authority that the machine knows
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	if o.Server == "" && (o.Email != "" || o.CAFile != "") {
		return fmt.Errorf("--acme-email and --acme-ca-file are for an --acme-server: name one, or %s", LetsEncrypt)
	}
	if u, err := url.Parse(o.directory()); o.Server != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		return fmt.Errorf("--acme-server %s: want %s or the URL of a directory, https://...", o.Server, LetsEncrypt)
	}
	if o.Email != "" {
		if a, err := mail.ParseAddress(o.Email); err != nil || a.Address != o.Email {
			return fmt.Errorf("--acme-email %s: want an address as admin@example.com", o.Email)
		}
	}
	return nil
}

// directory is the URL of the server's directory; empty: there is none.
func (o Options) directory() string {
	if o.Server == LetsEncrypt {
		return letsEncrypt
	}
	return o.Server
}
