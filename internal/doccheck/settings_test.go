package doccheck

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/node"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestSettingsInThePageAreTaken: what docs/settings.md shows can be loaded, and the first of it is
// the file that the example loads.
func TestSettingsInThePageAreTaken(t *testing.T) {
	blocks := yamlBlock.FindAllStringSubmatch(read(t, root+"/docs/settings.md"), -1)
	require.NotEmpty(t, blocks)
	require.Equal(t, read(t, root+"/node/testdata/holdfast.yaml"), blocks[0][1])
	for _, b := range blocks {
		_, err := node.ParseSettings("docs/settings.md", []byte(b[1]))
		require.NoError(t, err, b[1])
	}
}
