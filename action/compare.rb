#!/usr/bin/env ruby
# frozen_string_literal: true

# compare.rb --base=REF [--help]: run it in a checkout of a Rack application. action.yml does for a pull request.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "memscope"
require "optparse"
require "tmpdir"
require_relative "commit"
require_relative "comparison"
require_relative "publication"

HELP = <<~TEXT
  usage: compare.rb --base=REF [options]

  Measure a Rack application at two commits, and print what grew, as Markdown.

          --base REF                   the commit to compare with
          --head REF                   the commit to judge (default: HEAD)
          --app FILE                   the rackup file (default: config.ru)
          --paths PATHS                paths to request, separated by spaces
                                       (default: /)
          --requests N                 requests to each path (default: 200)
          --boot COMMAND               loads the application (default: loads the
                                       rackup file)
          --prepare COMMAND            runs first, in the worktree of each commit
          --allocator NAME             as for memscope exec (default: none)
          --boot-limit KIB             allowed growth in use after the boot
                                       (default: 512)
          --retained-limit KIB         allowed growth of what the first requests
                                       to a path retain (default: 8)
          --objects-limit N            allowed growth of the objects allocated per
                                       request (default: 0)
          --pull-request N             write a comment by gh instead, which needs
                                       GITHUB_REPOSITORY and GH_TOKEN

  exit status:
    0   nothing grew
    1   something grew
    64  wrong options
    74  the application could not be measured
TEXT
DEFAULTS = { head: "HEAD", app: "config.ru", paths: "/", requests: 200, "boot-limit": 512, "retained-limit": 8,
             "objects-limit": 0 }.freeze

# An option may be empty, like an input of an action that is not given.
def options
  given = {}
  parser = OptionParser.new(HELP)
  HELP.scan(/--([\w-]+) [A-Z]/) { |name,| parser.on("--#{name} VALUE") }
  parser.parse!(into: given)
  given = DEFAULTS.merge(given.reject { |_name, value| value.empty? })
  given.merge!(given.slice(*DEFAULTS.keys.last(4)).transform_values { |value| Integer(value) })
  given[:base] ? given : raise(OptionParser::MissingArgument, "--base")
rescue OptionParser::ParseError, ArgumentError => e
  warn e.message
  exit 64
end

# Compares two worktrees, with paths of the same length.
def compare(given, limits)
  Dir.mktmpdir("memscope") do |directory|
    roots = %w[base head].map { |side| File.join(File.realpath(directory), side) }
    both = given.values_at(:base, :head).zip(roots).map { |one, root| Memscope::Commit.new(one, root, given) }
    Memscope::Comparison.new(both, given[:paths].split, limits)
  ensure
    roots.each { |root| system("git", "worktree", "remove", "--force", root, err: File::NULL) }
  end
end

given = options
publication = Memscope::Publication.new(given[:"pull-request"], ENV.delete("GH_TOKEN"))
limits = { boot: given[:"boot-limit"] * 1024, retained: given[:"retained-limit"] * 1024,
           objects: given[:"objects-limit"] }
begin
  comparison = compare(given, limits)
  publication.write(comparison.to_markdown)
  exit comparison.findings.any? ? 1 : 0
rescue Memscope::Commit::Failed => e
  publication.write(Memscope::Comparison.titled("not measured\n#{e.message}\n"))
  exit 74
end
