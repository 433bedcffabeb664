#!/usr/bin/env ruby
# frozen_string_literal: true

# compare.rb --base=REF [--help]: run it in a checkout of a Rack application. action.yml does for a pull request.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "memscope"
require "optparse"
require "tmpdir"
require_relative "commit"
require_relative "comparison"

HELP = <<~TEXT
  usage: compare.rb --base=REF [options]

  Measure a Rack application at two commits, and print what grew, as Markdown.

          --base REF                   the commit to compare with; 0 if there is none
          --head REF                   the commit to judge (default: HEAD)
          --app FILE                   the rackup file, from the repository's root
                                       (default: config.ru)
          --paths PATHS                paths to request, each with a leading /,
                                       separated by spaces (default: /)
          --requests N                 requests to each path, 100 to 1000000
                                       (default: 200)
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
          --output FILE                writes the Markdown there

  exit status:
    0   nothing grew, or there is no base
    1   something grew
    64  wrong options
    74  the application could not be measured
TEXT
DEFAULTS = { head: "HEAD", app: "config.ru", paths: "/", requests: 200, "boot-limit": 512, "retained-limit": 8,
             "objects-limit": 0 }.freeze
NUMBERS = DEFAULTS.keys.last(4).to_h { |name| [name, 0..] }.merge(requests: Memscope::Check::REQUESTS).freeze

# An option may be empty, like an input of an action that is not given.
def options
  given = {}
  parser = OptionParser.new
  HELP.scan(/--([\w-]+) [A-Z]/) { |name,| parser.on("--#{name} VALUE") }
  parser.on("--help") do
    puts HELP
    exit
  end
  parser.parse!(into: given)
  given = DEFAULTS.merge(given.reject { |_name, value| value.empty? })
  given[:base] || raise(OptionParser::MissingArgument, "--base")
  checked(given)
rescue OptionParser::ParseError => e
  warn e.message
  exit 64
end

def checked(given)
  path = given[:paths].split.find { |one| !one.start_with?("/") }
  raise OptionParser::InvalidArgument, "--paths: #{path} has no leading /" if path

  given.merge(NUMBERS.to_h do |name, allowed|
    number = Integer(given[name].to_s, 10, exception: false)
    next [name, number] if number && allowed.cover?(number)

    most = " to #{allowed.end}" if allowed.end
    raise OptionParser::InvalidArgument, "--#{name}=#{given[name]} is not a number from #{allowed.begin}#{most}"
  end)
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

def write(given, text) = given[:output] ? File.write(given[:output], text) : puts(text)

given = options
about = given.values_at(:app, :allocator).compact.join(" ")
limits = { boot: given[:"boot-limit"] * 1024, retained: given[:"retained-limit"] * 1024,
           objects: given[:"objects-limit"] }
begin
  if given[:base].match?(/\A0+\z/)
    write(given, Memscope::Comparison.said(about, :no_base))
  else
    comparison = compare(given, limits)
    write(given, comparison.to_markdown(about))
    exit 1 if comparison.findings.any?
  end
rescue StandardError => e
  # Ruby's exit status would be 1, which says that something grew.
  warn e.full_message unless e.is_a?(Memscope::Commit::Failed)
  begin
    write(given, Memscope::Comparison.said(about, :not_measured, why: e.message))
  ensure
    exit 74 # even if the disk is full
  end
end
