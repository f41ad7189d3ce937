package cloudmanager

import (
	"net/netip"
	"strconv"
	"strings"
)

// not is true when its flag is false.
type not bool

func (n *not) Type() string   { return "bool" }
func (n *not) String() string { return strconv.FormatBool(!bool(*n)) }

func (n *not) Set(s string) error {
	yes, err := strconv.ParseBool(s)
	*n = not(!yes)
	return err
}

// prefixes is one prefix, or one of each family.
type prefixes []netip.Prefix

func (p *prefixes) Type() string { return "cidrs" }
func (p *prefixes) String() string {
	var list []string
	for _, one := range *p {
		list = append(list, one.String())
	}
	return strings.Join(list, ",")
}

func (p *prefixes) Set(s string) error {
	*p = nil
	for part := range strings.SplitSeq(s, ",") {
		one, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*p = append(*p, one.Masked())
	}
	return nil
}
