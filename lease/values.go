package lease

import "context"

// This file brings the values of a caller's context, such as a trace, to the requests that
// are made for it. When those end is the Keeper's.

// bearing is a context with the values of another beside its own.
type bearing struct {
	context.Context
	values context.Context
}

// Value looks at the context itself first: package context finds by values, too, what ends it.
func (b bearing) Value(key any) any {
	if v := b.Context.Value(key); v != nil {
		return v
	}
	return b.values.Value(key)
}

// bear returns ctx with the values of caller; nil and context.Background() have none.
func bear(ctx, caller context.Context) context.Context {
	if caller == nil || caller == context.Background() {
		return ctx
	}
	return bearing{ctx, caller}
}
