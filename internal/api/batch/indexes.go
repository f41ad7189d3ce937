package batch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Interval is the indexes from First to Last.
type Interval struct{ First, Last int32 }

// Indexes are a set of completion indexes: growing intervals that do not touch.
// What a set costs depends on its gaps, not on its size. Sets are not changed.
type Indexes []Interval

// ParseIndexes reads "1,3-5,7": growing intervals below completions.
func ParseIndexes(text string, completions int32) (Indexes, error) {
	if text == "" {
		return nil, nil
	}
	var list Indexes
	for part := range strings.SplitSeq(text, ",") {
		in, err := parseInterval(part, completions)
		if err != nil {
			return nil, err
		}
		n := len(list)
		switch {
		case n > 0 && list[n-1].Last >= in.First:
			return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", list[n-1].Last, in.First)
		case n > 0 && list[n-1].Last == in.First-1:
			list[n-1].Last = in.Last
		default:
			list = append(list, in)
		}
	}
	return list, nil
}

func parseInterval(text string, completions int32) (Interval, error) {
	ends := strings.Split(text, "-")
	if len(ends) > 2 {
		return Interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	numbers := make([]int32, len(ends))
	for i, end := range ends {
		n, err := strconv.ParseInt(end, 10, 32)
		if err != nil {
			return Interval{}, fmt.Errorf("cannot convert string to integer for index: %q", end)
		}
		if int32(n) >= completions {
			return Interval{}, fmt.Errorf("too large index: %q", end)
		}
		numbers[i] = int32(n)
	}
	if len(numbers) == 1 {
		return Interval{numbers[0], numbers[0]}, nil
	}
	if numbers[0] >= numbers[1] {
		return Interval{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", numbers[0], numbers[1])
	}
	return Interval{numbers[0], numbers[1]}, nil
}

// String is the set as the status of a job has it: "1,3-5,7". Two indexes in a
// row are written one by one.
func (s Indexes) String() string {
	var b strings.Builder
	for i, in := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(in.First)))
		switch in.Last {
		case in.First:
			continue
		case in.First + 1:
			b.WriteByte(',')
		default:
			b.WriteByte('-')
		}
		b.WriteString(strconv.Itoa(int(in.Last)))
	}
	return b.String()
}

// Total is how many indexes the set has.
func (s Indexes) Total() (n int32) {
	for _, in := range s {
		n += in.Last - in.First + 1
	}
	return n
}

// Has says that the index is in the set.
func (s Indexes) Has(index int32) bool {
	_, ok := slices.BinarySearchFunc(s, index, func(in Interval, index int32) int {
		switch {
		case in.Last < index:
			return -1
		case in.First > index:
			return 1
		}
		return 0
	})
	return ok
}

// With is the set with more indexes, which may be in it already. They are sorted in place.
func (s Indexes) With(indexes ...int32) Indexes {
	if len(indexes) == 0 {
		return s
	}
	slices.Sort(indexes)
	more := make(Indexes, len(indexes))
	for i, n := range indexes {
		more[i] = Interval{n, n}
	}
	return s.Union(more)
}

// Union is what is in one of two sets.
func (s Indexes) Union(other Indexes) Indexes {
	out := make(Indexes, 0, len(s)+1)
	for len(s)+len(other) > 0 {
		var in Interval
		if len(other) == 0 || len(s) > 0 && s[0].First < other[0].First {
			in, s = s[0], s[1:]
		} else {
			in, other = other[0], other[1:]
		}
		if n := len(out); n > 0 && int64(in.First) <= int64(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, in.Last)
		} else {
			out = append(out, in)
		}
	}
	return out
}

// Below is what of the set is less than limit.
func (s Indexes) Below(limit int32) Indexes {
	out := make(Indexes, 0, len(s))
	for _, in := range s {
		if in.First < limit {
			out = append(out, Interval{in.First, min(in.Last, limit-1)})
		}
	}
	return out
}

// Common is how many indexes are in both sets.
func (s Indexes) Common(other Indexes) (n int32) {
	for len(s) > 0 && len(other) > 0 {
		n += max(0, min(s[0].Last, other[0].Last)-max(s[0].First, other[0].First)+1)
		if s[0].Last < other[0].Last {
			s = s[1:]
		} else {
			other = other[1:]
		}
	}
	return n
}

// Gaps are the first n indexes below limit that are not in the set, in order.
func (s Indexes) Gaps(n int, limit int32) []int32 {
	var out []int32
	next := int32(0)
	fill := func(to int32) {
		for ; next < to && len(out) < n; next++ {
			out = append(out, next)
		}
	}
	for _, in := range s {
		fill(min(in.First, limit))
		next = max(next, in.Last+1)
	}
	fill(limit)
	return out
}
