# frozen_string_literal: true

require "etc"
require "rake"
require_relative "../ext/memscope/record_structs"

# Builds in directories that the block may delete: other rakes wait until this one has built there.
def building(directory)
  mkdir_p File.dirname(directory)
  File.open("#{directory}.lock", "a") do |lock|
    lock.flock(File::LOCK_EX)
    yield
  end
end

# Files that have changed since the commit SINCE, and new ones; nil if all count: without SINCE, if there is no such
# commit, or if a file that decides about all others (a pattern) has changed.
def changed_files(deciding)
  changed = ENV.key?("SINCE") ? `git diff --name-only #{ENV.fetch("SINCE")}`.lines(chomp: true) : []
  return if changed.empty? || changed.grep(deciding).any?

  changed + `git ls-files --others --exclude-standard`.lines(chomp: true)
end

# The paths of a C file and of those of the extension that it includes, directly or not; of record_structs.h, the tables
# that it is made from.
def with_included(path, found = [])
  return found if found.include?(path)

  found << path
  File.read(path).scan(/^\s*#\s*include\s+"(.+)"/).flatten.each do |name|
    found.concat(FieldTables.paths) if name == "record_structs.h"
    from = [File.dirname(path), "ext/memscope/engine", "ext/memscope"].find { |room| File.file?(File.join(room, name)) }
    with_included(File.join(from, name), found) if from
  end
  found
end

# Builds an extension in directory and leaves the library at directory/path. A change to any of its sources, or to any
# file in includes, rebuilds the whole extension.
def build_extension(extconf, directory, path, includes: [], environment: {}, make: [], ruby: RbConfig.ruby)
  target = File.join(directory, path)
  building(directory) do
    next if uptodate?(target, FileList["#{File.dirname(extconf)}/**/*.{c,h,def,ld,rb}"] + FieldTables.paths + includes)

    rm_rf directory
    mkdir_p File.dirname(target)
    output = { chdir: directory, out: [File.join(directory, "build.log"), "a"] }
    sh environment, *ruby, File.expand_path(extconf), output
    sh environment, "make", "-j#{Etc.nprocessors}", *make, output
    built = File.join(directory, File.basename(path))
    mv built, target unless built == target
  end
end
