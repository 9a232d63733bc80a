"""The recipes of docs/testcontainers.md as programs: each starts the cluster, prints its addresses, waits for a line.

A recipe's code is taken from the page unchanged. It is surrounded by the parts that any program of its language needs:
imports, and a project for its package manager.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testcontainers.md"

_PYTHON = """%s
import sys
try:
    print(json.dumps({"control": control, "servers": servers}), flush=True)
    sys.stdin.readline()
finally:
    cluster.stop()
"""
_NODE = """import assert from "node:assert/strict";
import { once } from "node:events";
import { GenericContainer, Wait } from "testcontainers";

%s
try {
  console.log(JSON.stringify({ control, servers: brokers }));
  await once(process.stdin, "data");
} finally {
  await cluster.stop();
  process.exit();
}
"""
_GO = """package recipe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/docker/go-connections/nat"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

func TestRecipe(t *testing.T) {
	ctx := context.Background()
%s
	servers := []string{addresses["0"], addresses["1"], addresses["2"]}
	line, _ := json.Marshal(map[string]any{"control": control, "servers": servers})
	fmt.Println(string(line))
	bufio.NewReader(os.Stdin).ReadString('\\n')
}
"""
_JAVA = """import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.stream.*;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;

public final class Recipe {
    private static void assertEquals(Object wanted, Object found, String why) {
        if (!wanted.equals(found)) throw new AssertionError(why);
    }

    public static void main(String[] arguments) throws Exception {
%s
        System.out.println("{\\"control\\": \\"" + control + "\\", \\"servers\\": [\\""
            + String.join("\\", \\"", servers) + "\\"]}");
        System.in.read();
        cluster.stop();
    }
}
"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>example</groupId>
  <artifactId>recipe</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
    <mdep.outputFile>classpath.txt</mdep.outputFile>
  </properties>
  <dependencies>
    <dependency>
      <groupId>org.testcontainers</groupId><artifactId>testcontainers</artifactId><version>1.21.3</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a language's recipe becomes a program.

    Attributes:
        heading: its heading on the page.
        source: name of the program's file.
        template: the program, with ``%s`` for the recipe's code.
        files: of its project, by name.
        fetch: the commands that get its packages; if one fails, the test is skipped.
        build: the commands that compile it.
        command: the program.
        needs: programs that must be installed.
    """

    heading: str
    source: str
    template: str
    files: Mapping[str, str]
    fetch: Sequence[Sequence[str]]
    build: Sequence[Sequence[str]]
    command: Sequence[str]
    needs: Sequence[str]

    def write(self, directory: Path) -> None:
        """Write the project."""
        for name, text in {**self.files, self.source: self.template % code(self.heading)}.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def code(heading: str) -> str:
    """Return the code block under a heading of the page.

    Raises:
        AssertionError: there is none.
    """
    pattern = rf"^## {re.escape(heading)}\n.*?^```\w+\n(.*?)^```$"
    found = re.search(pattern, PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{PAGE.name} has no code under {heading}"
    return found[1]


RECIPES = {
    "python": Recipe(
        "Python",
        "recipe.py",
        _PYTHON,
        {},
        [
            ["python3", "-m", "venv", "venv"],
            ["venv/bin/python", "-m", "pip", "install", "-q", "testcontainers>=4.9,<5"],
        ],
        [],
        ["venv/bin/python", "recipe.py"],
        ["python3"],
    ),
    "node": Recipe(
        "Node",
        "recipe.mjs",
        _NODE,
        {"package.json": '{"private": true, "dependencies": {"testcontainers": "^11.0.0"}}'},
        [["npm", "install", "--no-audit", "--no-fund"]],
        [],
        ["node", "recipe.mjs"],
        ["node", "npm"],
    ),
    "go": Recipe(
        "Go",
        "recipe_test.go",
        _GO,
        {"go.mod": "module recipe\n\ngo 1.24\n"},
        [
            ["go", "get", "-t", "github.com/testcontainers/testcontainers-go@v0.39.0"],
            ["go", "mod", "tidy"],
        ],
        [["go", "test", "-c", "-o", "recipe"]],
        ["./recipe"],
        ["go"],
    ),
    "java": Recipe(
        "Java",
        "src/main/java/Recipe.java",
        _JAVA,
        {"pom.xml": _POM},
        [["mvn", "-q", "-B", "dependency:build-classpath"]],
        [["mvn", "-q", "-B", "compile"]],
        ["sh", "-c", 'exec java -cp "target/classes:$(cat classpath.txt)" Recipe'],
        ["mvn", "java"],
    ),
}
