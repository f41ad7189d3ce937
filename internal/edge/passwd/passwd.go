package passwd

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

const (
	// longest is the most bytes of a password that are looked at: a longer one is nobody's.
	longest = 256
	// mostCost and mostRounds are how much work a hash may ask for, so that who writes one cannot
	// have the machine busy for seconds with each request.
	mostCost   = 14
	mostRounds = 200_000
)

// Parse reads lines of name:hash. Empty ones and those after # are comments; problems say what is
// wrong with others, without their hashes.
func Parse(data []byte) (users map[string]string, problems []string) {
	users = map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, hash, ok := strings.Cut(line, ":")
		hash, _, _ = strings.Cut(hash, ":") // what follows is a comment
		switch {
		case !ok || name == "":
			problems = append(problems, fmt.Sprintf("line %d is not a name and a hash with a colon between", n))
		case !Known(hash):
			problems = append(problems, fmt.Sprintf("the hash of %q is of no kind that is read here", name))
		default:
			users[name] = hash
		}
	}
	if err := lines.Err(); err != nil {
		problems = append(problems, err.Error())
	}
	return users, problems
}

// kind is a way to hash.
type kind struct {
	prefix string
	match  func(hash, password string) bool
}

var kinds = []kind{
	{"$apr1$", matchMD5}, {"$1$", matchMD5}, {"$5$", matchSHA}, {"$6$", matchSHA}, {"$2a$", matchBcrypt}, {"$2b$", matchBcrypt}, {"$2y$", matchBcrypt},
	{"{SHA}", matchDigest}, {"{SSHA}", matchDigest}, {"{PLAIN}", matchPlain},
}

func kindOf(hash string) *kind {
	for i := range kinds {
		if strings.HasPrefix(hash, kinds[i].prefix) {
			return &kinds[i]
		}
	}
	return nil
}

// Known says whether a hash is of a kind that [Match] knows, and asks for no more work than it does.
func Known(hash string) bool {
	k := kindOf(hash)
	switch {
	case k == nil:
		return false
	case strings.HasPrefix(k.prefix, "$2"):
		cost, err := bcrypt.Cost([]byte(hash))
		return err == nil && cost <= mostCost
	case k.prefix == "$5$" || k.prefix == "$6$":
		_, ok := parseSHA(hash)
		return ok
	}
	return true
}

// Match says whether a password is the one that was hashed.
func Match(hash, password string) bool {
	k := kindOf(hash)
	return k != nil && len(password) <= longest && Known(hash) && k.match(hash, password)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func matchBcrypt(hash, password string) bool {
	return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
}

func matchPlain(hash, password string) bool {
	return same(strings.TrimPrefix(hash, "{PLAIN}"), password)
}

// matchDigest is SHA-1, with or without salt behind the digest.
func matchDigest(hash, password string) bool {
	_, text, _ := strings.Cut(hash, "}")
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) < sha1.Size || strings.HasPrefix(hash, "{SHA}") && len(data) > sha1.Size {
		return false
	}
	sum := sha1.Sum(append([]byte(password), data[sha1.Size:]...))
	return subtle.ConstantTimeCompare(sum[:], data[:sha1.Size]) == 1
}
