# frozen_string_literal: true

require "rbconfig"

module Memscope
  module Launch
    # The files that a program loaded, as bodies of Requires::Node. Allocations by the require of a missing or already
    # loaded file belong to the file that called require.
    class RequireTree
      RUBY = RbConfig::CONFIG.values_at("rubylibdir", "rubyarchdir", "vendordir", "sitedir").compact
                             .to_h { |directory| ["#{directory}/", "ruby"] }.freeze
      # A gem's directory, named after it and its version.
      GEM = %r{/gems/([^/]+)-\d[^/]*/}

      # @param entries [Array<RequireRecorder::Entry>] in the order in which they began
      # @param owned [Array<Array<Integer>>] figures by the entry's number, as Native.owned returns them
      # @param files [Hash{String => Integer}] resident bytes, by mapped file
      def initialize(entries, owned, files)
        @entries = entries
        @owned = owned
        @files = files
        gems = defined?(::Gem.loaded_specs) ? ::Gem.loaded_specs.values : []
        named = gems.flat_map { |gem| [gem.full_gem_path, gem.extension_dir].map { |path| ["#{path}/", gem.name] } }
        # Each directory with the gem's name, "ruby" or "application", the innermost first.
        @directories = [*named, *RUBY, ["#{RequireRecorder.directory}/", "application"]]
                       .sort_by { |path, _name| -path.length }
        @ids = ids
      end

      # @return [Array<Hash{Symbol => Object}>] the program first
      def nodes
        program = { id: 0, parent: nil, path: $PROGRAM_NAME, gem: nil, lazy: false, mapped_bytes: 0 }
        numbers = @ids.keys.group_by { |number| id(number) }
        [program, *kept.map { |entry| node(entry) }].map { |node| node.merge(costs(numbers[node[:id]])) }
      end

      # @param pairs [Array<Array(Integer, String)>] the number of a file, and an already loaded feature it required
      # @return [Array<Array(Integer, Integer)>] the ids of both files, without pairs whose feature is unknown
      def again(pairs)
        loaded = kept.flat_map { |entry| [[entry.feature, entry], [entry.path, entry]] }.to_h
        pairs.filter_map { |number, feature| [id(number), @ids[loaded[feature].number]] if loaded[feature] }.uniq
      end

      private

      # The id of the node that an owner's memory belongs to.
      def id(number) = @ids.fetch(number, 0)

      def kept = @kept ||= @entries.reject { |entry| entry.loaded == false }

      # The id for each entry's number: the entry's own or, if it has none, the id of the file that required it.
      def ids
        own = kept.each.with_index(1).to_h { |entry, id| [entry.number, id] }
        @entries.each_with_object({ Native::OWNER_OUTSIDE => 0 }) do |entry, ids|
          ids[entry.number] = own[entry.number] || ids.fetch(entry.parent, 0)
        end
      end

      def node(entry)
        path = (entry.path || entry.feature).to_s.scrub
        { id: id(entry.number), parent: id(entry.parent), path: path, gem: gem_of(path), lazy: entry.autoloaded,
          mapped_bytes: @files.values_at(*entry.mapped).compact.sum }
      end

      # The sums of these owners.
      def costs(numbers)
        objects, objects_bytes, _blocks, malloc_bytes = @owned.values_at(*numbers).transpose.map(&:sum)
        { objects: objects, objects_bytes: objects_bytes, malloc_bytes: malloc_bytes }
      end

      def gem_of(path)
        name = @directories.find { |directory, _name| path.start_with?(directory) }&.last
        name == "application" || name.nil? ? path[GEM, 1] || name : name
      end
    end
  end
end
