package passwd

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"strconv"
	"strings"
)

// alphabet is what crypt writes six bits with, the lowest ones first.
const alphabet = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// join is the bits of three bytes, of which the first is the highest.
func join(a, b, c byte) uint { return uint(a)<<16 | uint(b)<<8 | uint(c) }

// put writes bits as n characters.
func put(to *strings.Builder, bits uint, n int) {
	for range n {
		to.WriteByte(alphabet[bits&63])
		bits >>= 6
	}
}

// matchMD5 is crypt by MD5 ($1$) and Apache's, which differs by its name alone.
func matchMD5(hashed, password string) bool {
	magic := "$1$"
	if strings.HasPrefix(hashed, "$apr1$") {
		magic = "$apr1$"
	}
	salt, want, ok := strings.Cut(strings.TrimPrefix(hashed, magic), "$")
	return ok && same(md5Crypt(password, magic, salt[:min(len(salt), 8)]), want)
}

func md5Crypt(password, magic, salt string) string {
	p := []byte(password)
	sum := md5.Sum([]byte(password + salt + password))
	h := md5.New()
	h.Write([]byte(password + magic + salt))
	h.Write(cycle(sum[:], len(p)))
	for n := len(p); n > 0; n >>= 1 {
		if n&1 == 1 {
			h.Write([]byte{0})
		} else {
			h.Write(p[:1])
		}
	}
	last := stretcher{1000, md5.New, p, []byte(salt)}.stretch(h.Sum(nil))
	var out strings.Builder
	for i := range 5 {
		third := i + 12
		if i == 4 {
			third = 5
		}
		put(&out, join(last[i], last[i+6], last[third]), 4)
	}
	put(&out, uint(last[11]), 2)
	return out.String()
}

// stretcher hashes again and again, each time with another order of what there is.
type stretcher struct {
	rounds         int
	with           func() hash.Hash
	password, salt []byte
}

func (s stretcher) stretch(sum []byte) []byte {
	h := s.with()
	for i := range s.rounds {
		h.Reset()
		first, last := sum, s.password
		if i%2 == 1 {
			first, last = s.password, sum
		}
		h.Write(first)
		if i%3 != 0 {
			h.Write(s.salt)
		}
		if i%7 != 0 {
			h.Write(s.password)
		}
		h.Write(last)
		sum = h.Sum(nil)
	}
	return sum
}

// cycle is n bytes of data, which is repeated.
func cycle(data []byte, n int) []byte {
	if n == 0 {
		return nil
	}
	return bytes.Repeat(data, n/len(data)+1)[:n]
}

// shaCrypt is what crypt by SHA-256 ($5$) or SHA-512 ($6$) says before the hash itself.
type shaCrypt struct {
	with       func() hash.Hash
	rounds     int
	salt, want string
}

func parseSHA(hashed string) (s shaCrypt, ok bool) {
	s = shaCrypt{with: sha256.New, rounds: 5000}
	if strings.HasPrefix(hashed, "$6$") {
		s.with = sha512.New
	}
	rest := hashed[len("$5$"):]
	if text, after, found := strings.Cut(rest, "$"); found && strings.HasPrefix(text, "rounds=") {
		n, err := strconv.Atoi(strings.TrimPrefix(text, "rounds="))
		if err != nil || n > mostRounds {
			return s, false
		}
		s.rounds, rest = max(n, 1000), after
	}
	s.salt, s.want, ok = strings.Cut(rest, "$")
	s.salt = s.salt[:min(len(s.salt), 16)]
	return s, ok
}

func matchSHA(hashed, password string) bool {
	s, ok := parseSHA(hashed)
	return ok && same(s.sum(password), s.want)
}

func (s *shaCrypt) sum(password string) string {
	p := []byte(password)
	once := func(parts ...[]byte) []byte {
		h := s.with()
		for _, part := range parts {
			h.Write(part)
		}
		return h.Sum(nil)
	}
	b := once(p, []byte(s.salt), p)
	parts := [][]byte{p, []byte(s.salt), cycle(b, len(p))}
	for n := len(p); n > 0; n >>= 1 {
		if n&1 == 1 {
			parts = append(parts, b)
		} else {
			parts = append(parts, p)
		}
	}
	a := once(parts...)
	longPassword := cycle(once(bytes.Repeat(p, len(p))), len(p))
	longSalt := cycle(once(bytes.Repeat([]byte(s.salt), 16+int(a[0]))), len(s.salt))
	return s.text(stretcher{s.rounds, s.with, longPassword, longSalt}.stretch(a))
}

// text is a sum in the order of bytes that crypt has.
func (s *shaCrypt) text(sum []byte) string {
	var out strings.Builder
	if len(sum) == sha256.Size {
		i, j, k := 0, 10, 20
		for range 10 {
			put(&out, join(sum[i], sum[j], sum[k]), 4)
			i, j, k = k+1, i+1, j+1
		}
		put(&out, join(0, sum[31], sum[30]), 3)
		return out.String()
	}
	i, j, k := 0, 21, 42
	for range 21 {
		put(&out, join(sum[i], sum[j], sum[k]), 4)
		i, j, k = j+1, k+1, i+1
	}
	put(&out, uint(sum[63]), 2)
	return out.String()
}
