package table

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// Chain is a named list of rules. Hook is nil unless the kernel calls it.
type Chain struct {
	Name  string
	Hook  *nft.Hook
	Rules []Rule
}

// Rule is a list of statements: each goes on to the next one if its condition
// holds, and the last one says what to do.
type Rule []Statement

// Statement is one step of a rule. It can be written as text, which says all
// there is to it (two statements with the same text are the same), and
// as what the kernel runs. Registers hold nothing from one statement to the next.
type Statement interface {
	Text(f nft.Family) string
	// Lower returns the expressions. Sets that they bring along are added to b,
	// which must be followed by the rule.
	Lower(t nft.Table, b *nft.Batch) []nft.Expr
}

// Noter is a statement that the nft program lists as something else, or that needs
// a word for people. Its note says what it does; those of a rule have at most 127
// bytes.
type Noter interface{ Note() string }

// note joins the notes of a rule's statements.
func (r Rule) note() string {
	var notes []string
	for _, s := range r {
		if n, ok := s.(Noter); ok && n.Note() != "" {
			notes = append(notes, n.Note())
		}
	}
	return strings.Join(notes, "; ")
}

// mark tells rules apart: it is made of all that the kernel runs.
func (r Rule) mark(t nft.Table) uint64 {
	var sets nft.Batch // that the statements bring along
	h := fnv.New64a()
	for _, s := range r {
		for _, e := range s.Lower(t, &sets) {
			_, _ = h.Write(e) // it never fails
		}
	}
	_, _ = h.Write(sets.Bytes())
	return h.Sum64()
}

// Text writes the rule as the nft program would, as far as its language goes.
func (r Rule) Text(f nft.Family) string {
	words := make([]string, len(r))
	for i, s := range r {
		words[i] = s.Text(f)
	}
	return strings.Join(words, " ")
}

// Text is the whole chain, one rule a line.
func (c Chain) Text(f nft.Family) string {
	var b strings.Builder
	fmt.Fprintf(&b, "chain %s {\n", c.Name)
	if c.Hook != nil {
		fmt.Fprintf(&b, "  type %s hook %d priority %d\n", c.Hook.Type, c.Hook.Num, c.Hook.Priority)
	}
	for _, r := range c.Rules {
		fmt.Fprintf(&b, "  %s\n", r.Text(f))
	}
	b.WriteString("}\n")
	return b.String()
}
