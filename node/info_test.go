package node

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// What /info shows of a singleton is for people.
func TestInfoIsReadable(t *testing.T) {
	i := Info{Owner: lease.Owner{ID: "a"}, Singletons: map[string]singleton.Status{
		"cron": {Name: "cron", Phase: singleton.Inviting, Token: 7, Refused: fmt.Errorf("far away: %w", singleton.ErrProtocol)},
	}}
	text, err := json.Marshal(i.readable())
	require.NoError(t, err)
	var got struct {
		Owner      struct{ ID string }
		Singletons map[string]struct {
			Name, Phase, Refused string
			Token                int
		}
	}
	require.NoError(t, json.Unmarshal(text, &got), "%s", text)
	require.Equal(t, "a", got.Owner.ID)
	cron := got.Singletons["cron"]
	require.Equal(t, "cron", cron.Name)
	require.Equal(t, "inviting", cron.Phase)
	require.Contains(t, cron.Refused, "far away: ")
	require.Equal(t, 7, cron.Token)
}
