package secureport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// version is a version of TLS by the name that Go has for it. Those before 1.2 are not spoken.
type version uint16

var versions = map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

func (v *version) Type() string { return "version" }
func (v *version) String() string {
	for name, n := range versions {
		if n == uint16(*v) {
			return name
		}
	}
	return ""
}

func (v *version) Set(s string) error {
	n, ok := versions[s]
	if !ok {
		return fmt.Errorf("unknown tls version %q: want VersionTLS12 or VersionTLS13", s)
	}
	*v = version(n)
	return nil
}

// ciphers are cipher suites by their names, one after the other.
type ciphers []uint16

func (c *ciphers) Type() string { return "names" }
func (c *ciphers) String() string {
	var names []string
	for _, id := range *c {
		names = append(names, tls.CipherSuiteName(id))
	}
	return strings.Join(names, ",")
}

func (c *ciphers) Set(s string) error {
	*c = nil
	known := slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites())
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		i := slices.IndexFunc(known, func(k *tls.CipherSuite) bool { return k.Name == name })
		if i < 0 {
			return fmt.Errorf("cipher suite %s not supported or doesn't exist", name)
		}
		*c = append(*c, known[i].ID)
	}
	return nil
}

// curves are ways to agree on keys, by their numbers.
type curves []tls.CurveID

func (c *curves) Type() string { return "numbers" }
func (c *curves) String() string {
	var numbers []string
	for _, id := range *c {
		numbers = append(numbers, strconv.Itoa(int(id)))
	}
	return strings.Join(numbers, ",")
}

func (c *curves) Set(s string) error {
	*c = nil
	for text := range strings.SplitSeq(s, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		switch {
		case errors.Is(err, strconv.ErrRange), err == nil && (n <= 0 || n > math.MaxUint16):
			return fmt.Errorf("curve preference %s is out of range (must be 1-%d)", text, math.MaxUint16)
		case err != nil:
			return fmt.Errorf("curve preference %q: want a number, such as 29 for X25519", text)
		case slices.Contains(*c, tls.CurveID(n)):
			return fmt.Errorf("duplicate curve preference %d", n)
		case strings.HasPrefix(tls.CurveID(n).String(), "CurveID("): // how one is written that has no name
			return fmt.Errorf("curve preference %d is not supported by the current Go version", n)
		}
		*c = append(*c, tls.CurveID(n))
	}
	return nil
}

// namedList are certificates for names. Each use of the flag adds one, or several with semicolons in between.
type namedList []Named

var _ pflag.SliceValue = (*namedList)(nil)

func (l *namedList) Type() string   { return "namedCertKey" }
func (l *namedList) String() string { return strings.Join(l.GetSlice(), ";") }

func (l *namedList) Set(s string) error {
	for text := range strings.SplitSeq(s, ";") {
		n, err := parseNamed(text)
		if err != nil {
			return err
		}
		*l = append(*l, n)
	}
	return nil
}

// Append is for [pflag.SliceValue], which lets a file of settings have a list.
func (l *namedList) Append(s string) error { return l.Set(s) }

// Replace is for [pflag.SliceValue].
func (l *namedList) Replace(all []string) error {
	*l = nil
	for _, s := range all {
		if err := l.Set(s); err != nil {
			return err
		}
	}
	return nil
}

// GetSlice is for [pflag.SliceValue].
func (l *namedList) GetSlice() []string {
	all := make([]string, len(*l))
	for i, n := range *l {
		all[i] = n.String()
	}
	return all
}
