package edge

import (
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"strings"
)

// attribute is a part of a name of X.509.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// rdnSET is one of its steps; package asn1 reads what ends in SET as a set.
type rdnSET []attribute

// attributeNames are the short names that programs behind a proxy expect.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "street", "2.5.4.10": "O",
	"2.5.4.11": "OU", "2.5.4.12": "title", "2.5.4.17": "postalCode", "2.5.4.42": "GN", "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
	"1.2.840.113549.1.9.1": "emailAddress",
}

// distinguished is a name as RFC 2253 writes it: the last step first.
func distinguished(raw []byte) string {
	var steps []rdnSET
	if rest, err := asn1.Unmarshal(raw, &steps); err != nil || len(rest) > 0 {
		return ""
	}
	var b strings.Builder
	for n := len(steps) - 1; n >= 0; n-- {
		if n < len(steps)-1 {
			b.WriteByte(',')
		}
		for i, a := range steps[n] {
			if i > 0 {
				b.WriteByte('+')
			}
			name, known := attributeNames[a.Type.String()]
			if !known {
				name = a.Type.String()
			}
			b.WriteString(name + "=")
			if text, ok := a.text(); ok && known {
				writeEscaped(&b, text)
			} else {
				b.WriteString("#" + strings.ToUpper(hex.EncodeToString(a.Value.FullBytes)))
			}
		}
	}
	return b.String()
}

// text is the value, if it is one of the kinds of strings.
func (a *attribute) text() (string, bool) {
	switch a.Value.Tag {
	case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String, asn1.TagT61String, asn1.TagNumericString:
		return string(a.Value.Bytes), a.Value.Class == asn1.ClassUniversal
	}
	return "", false
}

// writeEscaped writes a value so that it ends where it ends, in letters that may stand in a header.
func writeEscaped(b *strings.Builder, text string) {
	for i := range len(text) {
		c := text[i]
		switch {
		case strings.IndexByte(`,+"\<>;`, c) >= 0, i == 0 && (c == '#' || c == ' '), i == len(text)-1 && c == ' ':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(b, "\\%02X", c)
		default:
			b.WriteByte(c)
		}
	}
}
